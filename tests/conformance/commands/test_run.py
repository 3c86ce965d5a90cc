"""``tritgold run``: where its model and its tokens come from, and how it decodes."""

from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from small_models import as_gguf
from tritgold_command import call, parsed

from tritgold.decode.diffusion_presets import PRESETS
from tritgold.formats.texts.gguf_tokenizer import tokenizer_metadata
from tritgold.golden.seeded import Shape, byte_tokenizer, write_seeded_model
from tritgold.options import DECODE


def test_run_generates_the_same_from_text_and_from_ids() -> None:
    by_text = parsed(call("run", "seeded", "--prompt", "Hello", "--max-tokens", 5, "--json"))
    by_ids = parsed(
        call("run", "seeded", "--ids", ",".join(map(str, by_text["prompt_ids"])), "--max-tokens", 5, "--json")
    )
    assert by_text["prompt_ids"] == [256, *b"Hello"]
    assert by_text["ids"] == by_ids["ids"]
    assert len(by_text["ids"]) == 5
    assert by_text["reason"] == "length"
    assert by_text["schema"] == "tritgold.run/1"


def test_run_prints_text_on_stdout_and_the_reason_on_stderr() -> None:
    result = call("run", "seeded", "--prompt", "Hello", "--max-tokens", 3)
    assert result.exit_code == 0
    assert "length: 3 tokens" in result.stderr
    assert "length" not in result.stdout


def test_blocks_of_a_cache_across_heads_are_said(tmp_path: Path) -> None:
    """Two key heads of 16 fill one block; heads of 64 are whole blocks."""
    write_seeded_model(tmp_path, Shape(hidden=64, inter=64, layers=1, heads=4, kv_heads=2, context=32))
    words = ("--ids", "1,2", "--max-tokens", 1, "--kv-cache", "q8_0")
    assert "extend over two heads" in call("run", tmp_path, *words).stderr
    assert "extend over two heads" not in call("run", "seeded", *words).stderr
    assert parsed(call("run", tmp_path, *words, "--json"))["kv_cache"]["across_heads"] is True


@pytest.mark.parametrize("arguments", [[], ["--prompt", "a", "--ids", "1"], ["--ids", "1,x"], ["--backend", "cuda"]])
def test_run_without_a_usable_input_is_a_usage_error(arguments: list[str]) -> None:
    assert call("run", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("ids", "tokens", "kind"),
    [
        ("1,999", 4, "token-id"),
        (",", 4, "no-tokens"),
        ("1," * 600, 4, "context-length"),
        ("1" * 30, 4, "token-id"),
        ("", 4, "no-tokens"),
    ],
)
def test_run_refuses_bad_tokens_before_computing(ids: str, tokens: int, kind: str) -> None:
    result = call("run", "seeded", "--ids", ids, "--max-tokens", tokens, "--json")
    assert result.exit_code == 3
    assert parsed(result)["kind"] == kind


def test_a_second_bos_is_refused() -> None:
    assert parsed(call("run", "seeded", "--prompt", "<bos>Hi", "--max-tokens", 1, "--json"))["kind"] == "two-bos"


def test_run_fills_the_context_exactly(model: Path) -> None:
    prompt = ",".join(["1"] * 30)
    result = parsed(call("run", model, "--ids", prompt, "--max-tokens", 100, "--json"))
    # 32 positions: 30 of the prompt, 2 generated tokens read at positions 30 and 31, a third that nothing can follow.
    assert (len(result["ids"]), result["reason"]) in [(3, "context_full")] or result["reason"] == "stop"


def test_a_tokenizer_that_is_not_there_is_never_ignored() -> None:
    assert call("run", "seeded", "--ids", "1", "--tokenizer", "/nope.json", "--max-tokens", 1).exit_code == 2


def gguf_of(folder: Path, file: Path, **changes: object) -> Path:
    """The folder as a GGUF file with its tokenizer under llama.cpp's keys alone, some of them changed (None: gone)."""
    made = as_gguf(folder, "bitnet-b1.58")
    keys = {**tokenizer_metadata(byte_tokenizer(), 256, (257,), None), "tokenizer.huggingface.json": None}
    for key, value in (keys | {f"tokenizer.ggml.{k}": v for k, v in changes.items()}).items():
        if isinstance(value, list):
            made.set(key, g.ARRAY, g.array(g.STRING, value))
        elif isinstance(value, np.ndarray):
            made.set(key, g.ARRAY, g.array(g.I32, value.tolist()))
        elif value is not None:
            made.set(key, g.BOOL if isinstance(value, bool) else g.U32 if isinstance(value, int) else g.STRING, value)
    return made.write(file)


@pytest.fixture
def packable(tmp_path: Path) -> Path:
    """A model whose rows I2_S can hold."""
    folder = tmp_path / "packable"
    folder.mkdir()
    write_seeded_model(folder, Shape(hidden=128, inter=128, layers=1, heads=2, kv_heads=2, context=32))
    return folder


def test_a_gguf_file_brings_its_tokenizer(packable: Path, tmp_path: Path) -> None:
    file = gguf_of(packable, tmp_path / "m.gguf")
    ours = parsed(call("run", file, "--prompt", "Hé", "--max-tokens", 4, "--json"))
    theirs = parsed(call("run", packable, "--prompt", "Hé", "--max-tokens", 4, "--json"))
    assert ours["prompt_ids"] == [256, *"Hé".encode()]
    assert (ours["ids"], ours["text"]) == (theirs["ids"], theirs["text"])


def test_a_gguf_tokenizer_that_cannot_be_built_leaves_the_ids(packable: Path, tmp_path: Path) -> None:
    file = gguf_of(packable, tmp_path / "m.gguf", pre="gpt-5")
    by_ids = call("run", file, "--ids", "256,72", "--max-tokens", 2)
    assert by_ids.exit_code == 0
    assert "[ids only: " in by_ids.stderr
    assert by_ids.stdout.strip().replace(",", "").isdigit()
    by_text = call("run", file, "--prompt", "H", "--json")
    assert (by_text.exit_code, parsed(by_text)["kind"]) == (3, "tokenizer-pre")
    told = call("run", file, "--prompt", "H", "--max-tokens", 2, "--tokenizer", packable / "tokenizer.json")
    assert told.exit_code == 0


def test_a_gguf_file_without_tokenizer_takes_the_one_beside_it(packable: Path, tmp_path: Path) -> None:
    file = gguf_of(packable, tmp_path / "m.gguf", model="none")
    missing = call("run", file, "--prompt", "H", "--json")
    assert (missing.exit_code, parsed(missing)["kind"]) == (3, "no-tokenizer")
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer())
    assert parsed(call("run", file, "--prompt", "H", "--max-tokens", 1, "--json"))["prompt_ids"] == [256, 72]


def test_a_model_without_tokenizer_takes_ids_and_says_so(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert call("run", model, "--ids", "1,2", "--max-tokens", 3).stdout.strip().count(",") == 2
    failed = call("run", model, "--prompt", "x")
    assert failed.exit_code == 3
    assert "--ids" in failed.stderr


def test_without_a_model_the_trained_one_writes() -> None:
    result = parsed(call("run", "--prompt", "In the beginning God created", "--max-tokens", 4, "--json"))
    assert result["model"] == "kjv-ar"
    assert result["text"].strip().split()[0] == "the"


def test_block_diffusion_says_how_many_passes_it_took() -> None:
    arguments = ("run", "kjv-dlm", "--prompt", "And it came to pass", "--max-tokens", 8)
    single = parsed(call(*arguments, "--threshold", 1, "--json"))
    fewer = parsed(call(*arguments, "--threshold", 0, "--json"))
    assert single["threshold"] == 1
    assert single["forwards"] >= len(single["ids"]) == len(single["order"]) == 8
    assert fewer["forwards"] < single["forwards"]
    text = call(*arguments)
    assert text.exit_code == 0
    assert "passes, reference]" in text.stderr


def test_every_way_to_decode_has_a_name() -> None:
    assert ("ar", *PRESETS) == DECODE
    common = ("run", "kjv-dlm", "--prompt", "And it came to pass", "--max-tokens", 4, "--json")
    default = parsed(call(*common))
    assert default["decode"] == "fast-dllm-v2"
    for name in DECODE:
        result = parsed(call(*common, "--decode", name))
        assert (result["decode"], len(result["ids"]), result["reason"]) == (name, 4, "length")
    assert parsed(call("run", "--prompt", "And", "--max-tokens", 1, "--json"))["decode"] == "ar"


def test_sizes_of_blocks_can_be_chosen() -> None:
    arguments = ("run", "kjv-dlm", "--ids", "0,5,6,7", "--max-tokens", 8, "--json", "--threshold", 0)
    blocks = [
        parsed(call(*arguments, "--block-size", block, "--sub-block-size", sub_block))["forwards_per_block"]
        for block, sub_block in ((4, 4), (4, 2), (8, 8))
    ]
    assert blocks == [[2, 1], [3, 2], [2, 1]]  # a pass a sub-block, and one to keep a block that others follow
    refused = call(*arguments, "--block-size", 8, "--sub-block-size", 3)
    assert (refused.exit_code, parsed(refused)["kind"]) == (3, "sub-block")
    refused = call("run", "kjv-ar", "--ids", "0,5", "--decode", "greedy", "--json")
    assert (refused.exit_code, parsed(refused)["kind"]) == (3, "no-diffusion")


@pytest.mark.parametrize(
    "arguments",
    [
        ("kjv-dlm", "--backend", "xla", "--decode", "llada"),
        ("kjv-ar", "--threshold", 0.9),
        ("kjv-ar", "--block-size", 8),
        ("kjv-dlm", "--decode", "ar", "--sub-block-size", 8),
        ("kjv-dlm", "--decode", "greedy", "--threshold", 0.9),
        ("kjv-dlm", "--decode", "gready"),
        ("kjv-dlm", "--block-size", 0),
        ("kjv-dlm", "--threshold", -1),
    ],
)
def test_what_block_diffusion_cannot_do_is_a_usage_error(arguments: tuple[object, ...]) -> None:
    assert call("run", *arguments, "--ids", "1,5").exit_code == 2


@pytest.mark.parametrize("tokens", [0, -100])
@pytest.mark.parametrize("model", ["kjv-ar", "kjv-dlm"])
def test_a_budget_of_nothing_is_refused(model: str, tokens: int) -> None:
    result = call("run", model, "--ids", "0,5", "--max-tokens", tokens, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not in the range x>=1" in result.stderr
