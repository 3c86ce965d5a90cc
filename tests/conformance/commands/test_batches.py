"""``tritgold run`` with several prompts: the texts of each alone, and what a server with defects makes of them."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.server_defects import ServerDefect, served
from tritgold.golden import trained_model
from tritgold_conformance.cli import main

PROMPTS = ["0,1144,262,2042", "0,5,300,12,1144,262", "0,1144,262,2042,7,9"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def parsed(*arguments: object) -> dict[str, Any]:
    result = call(*arguments, "--max-tokens", 6, "--json")
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def several(prompts: list[str]) -> list[str]:
    return [word for prompt in prompts for word in ("--ids", prompt)]


def test_a_batch_is_its_prompts_alone_whatever_the_sizes() -> None:
    alone = [parsed("--ids", prompt) for prompt in PROMPTS]
    for sizes in (
        (),
        ("--max-sequences", 1),
        ("--chunk", 2),
        ("--no-radix-cache",),
        ("--max-sequences", 2, "--chunk", 1),
    ):
        batch = parsed(*several(PROMPTS), *sizes)
        assert batch["schema"] == "tritgold.run-batch/1"
        for text, known in zip(batch["texts"], alone, strict=True):
            assert {key: text[key] for key in ("prompt_ids", "ids", "text", "reason")} == {
                key: known[key] for key in ("prompt_ids", "ids", "text", "reason")
            }
    assert parsed(*several(PROMPTS), "--max-sequences", 1)["counters"]["forwards"] > batch["counters"]["prefilled"]


def test_sizes_are_used() -> None:
    prompt = ",".join(map(str, range(40, 80)))
    first, second = parsed("--ids", prompt, "--ids", prompt, "--max-sequences", 1)["texts"]
    assert (first["reused"], second["reused"]) == (0, 32)
    assert parsed("--ids", prompt, "--ids", prompt, "--max-sequences", 1, "--no-radix-cache")["counters"]["reused"] == 0
    assert parsed("--ids", prompt, "--chunk", 10)["counters"]["forwards"] == 4 + 5
    told = parsed("--ids", prompt, "--max-sequences", 3)["serving"]
    assert told == {"max_sequences": 3, "chunk": 128, "radix_cache": True}


def test_sampling_and_schemes_are_those_of_one_prompt() -> None:
    given = ("--temperature", 1, "--seed", 3, "--kv-cache", "q8_0")
    batch = parsed(*several(PROMPTS[:2]), *given)
    assert [text["ids"] for text in batch["texts"]] == [parsed("--ids", p, *given)["ids"] for p in PROMPTS[:2]]
    assert batch["kv_cache"]["scheme"] == "q8_0"


def wrong(prompt: list[int], *defects: ServerDefect, chunk: int = 128, cached: int = 0) -> list[int]:
    opened = open_checkpoint(trained_model("kjv-ar"))
    return served(prompt, opened.weights, opened.config, 6, defects, chunk, cached)


def test_defects_of_a_server() -> None:
    prompt = [0, 1144, 262, 2042, 7, 9, 11, 13, 17]
    ids = ",".join(map(str, prompt))
    (found,) = parsed("--ids", ids, "--chunk", 4, "--defect", "chunk-tokens")["texts"]
    assert found["ids"] == wrong(prompt, ServerDefect.CHUNK_TOKENS, chunk=4) != parsed("--ids", ids)["ids"]
    both = parsed("--ids", PROMPTS[0], "--ids", PROMPTS[0], "--defect", "repeated-token")
    repeated = wrong(prompt[:4], ServerDefect.REPEATED_TOKEN, cached=4)
    assert [text["ids"] for text in both["texts"]] == [wrong(prompt[:4]), repeated]
    assert repeated != wrong(prompt[:4])
    # The second goes on after the first one's text, whose last token was never read.
    longer = [*prompt, *wrong(prompt), 19]
    second = parsed("--ids", ids, "--ids", ",".join(map(str, longer)), "--defect", "missing-key")["texts"][1]
    assert second["ids"] == wrong(longer, ServerDefect.MISSING_KEY, cached=len(prompt) + 6) != wrong(longer)
    assert second["reused"] == len(prompt) + 6
    within = parsed("--ids", ids, "--ids", ids, "--defect", "missing-key")["texts"][1]
    assert within["ids"] == wrong(prompt), "every token of the prompt itself was read"


def test_texts_by_number_and_a_failure_that_is_alone() -> None:
    told = call("--prompt", "In the beginning", "--prompt", "And God said", "--max-tokens", 2)
    assert told.exit_code == 0
    assert [line[:4] for line in told.stdout.splitlines()] == ["[1] ", "[2] "]
    assert "[2: length: 2 tokens]" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kjv-dlm", *several(PROMPTS)), "need --decode ar; here it is fast-dllm-v2"),
        (("kjv-dlm", "--ids", "5", "--max-sequences", 2), "need --decode ar"),
        ((*several(PROMPTS), "--backend", "xla", "--chunk", 4), "--backend xla does not have batch options --chunk"),
        ((*several(PROMPTS), "--sparsity", "top_k"), "--sparsity works with a single prompt"),
        ((*several(PROMPTS), "--threshold", 0.5), "--threshold: only for block diffusion"),
        ((*several(PROMPTS), "--prompt", "God"), "give --prompt or --ids, and not both"),
        (("--ids", "5", "--defect", "chunk-tokens", "--temperature", 1), "--temperature 0"),
        (("--ids", "5", "--defect", "chunk-tokens", "--kv-cache", "q8_0"), "the exact KV cache"),
        (("--ids", "5", "--defect", "chunk-tokens", "--max-sequences", 2), "reads prompts one after the other"),
        (("--ids", "5", "--defect", "missing-key", "--no-radix-cache"), "which --no-radix-cache switches off"),
        (("--ids", "5", "--max-sequences", 0), "x>=1"),
    ],
)
def test_what_a_batch_has_no_place_for(arguments: tuple[object, ...], said: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((*several(PROMPTS), "--kv-cache", "kivi2"), "kv-paged"),
        ((*several(PROMPTS), "--kv-cache", "a4_8"), "kv-shared"),
        (("--ids", "5", "--ids", "99999"), "token-id"),
        (("--ids", "5", "--ids", "99999", "--defect", "chunk-tokens"), "token-id"),
    ],
)
def test_what_a_batch_cannot_hold(arguments: tuple[object, ...], kind: str) -> None:
    result = call(*arguments, "--json")
    assert (result.exit_code, json.loads(result.stdout)["kind"]) == (3, kind)
