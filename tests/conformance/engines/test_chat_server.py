"""Servers that have chat completions alone: judged by one answer, with and without log-probabilities."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_test_server import Handler, server
from tritgold_command import call, parsed

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.comparing.logits import log_softmax
from tritgold_conformance.engines import chat_server
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.quick import quick
from tritgold_conformance.golden.reference_engine import ReferenceEngine

MESSAGE, COUNT = "In the beginning", 6
PROMPT = f"user: {MESSAGE}\n"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
Written = list[tuple[int, np.ndarray]]  # token, log-probabilities [vocab]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model, so that it writes words, with a template."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(trained_model("kjv-ar"), folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer(model / "tokenizer.json")


def written(model: Path, tokenizer: Tokenizer, checkpoint: Checkpoint, arithmetic: Any = GOLDEN_ARITHMETIC) -> Written:
    engine = ReferenceEngine(checkpoint, 64, arithmetic)
    row, found = engine.prefill(tokenizer.encode(PROMPT, special=False))[-1], []
    for _ in range(COUNT):
        found.append((int(np.argmax(row)), log_softmax(row)))
        row = engine.step(found[-1][0])
    return found


@pytest.fixture(scope="module")
def right(model: Path, tokenizer: Tokenizer) -> Written:
    return written(model, tokenizer, open_checkpoint(model))


def with_fault(name: str, model: Path, tokenizer: Tokenizer) -> Written:
    mutant = FAULTS[name].apply(quick(open_checkpoint(model)))
    assert mutant is not None
    return written(model, tokenizer, mutant.checkpoint, mutant.arithmetic)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What it writes are no words, so that its tokens need ids."""
    folder = tmp_path_factory.mktemp("small")
    write_seeded_model(folder, Shape(seed=7, hidden=64, inter=96, layers=2, heads=4, kv_heads=2, context=64))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "WRITTEN", COUNT)


def piece(tokenizer: Tokenizer, ids: list[int]) -> str:
    before = tokenizer.encode(PROMPT, special=False)
    return tokenizer.decode([*before, *ids]).removeprefix(tokenizer.decode(before))


def answer(tokenizer: Tokenizer, said: Written, logprobs: bool, ids: bool = False, more: str = "") -> dict[str, Any]:
    """As OpenAI's chats are; ids: and as llama.cpp's, whose tokens have ids."""
    text = piece(tokenizer, [token for token, _ in said]) + more

    def entry(token: int, value: float) -> dict[str, Any]:
        return {"token": piece(tokenizer, [token]), "logprob": value} | ({"id": token} if ids else {})

    content = [
        {
            **entry(token, float(row[token])),
            "top_logprobs": [entry(i, float(row[i])) for i in np.argsort(-row)[:5].tolist()],
        }
        for token, row in said
    ]
    choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}, "finish_reason": "length"}
    return {"choices": [choice | ({"logprobs": {"content": content}} if logprobs else {})]}


def check(model: Path, say: Callable[[dict[str, Any]], Any], *more: str) -> Any:
    """tritgold check of a server that answers chats so, and nothing else."""

    def handle(request: Handler, body: dict[str, Any]) -> None:
        if request.path != "/v1/chat/completions":
            request.send("", 404)
            return
        assert (body["messages"], body["max_tokens"]) == ([{"role": "user", "content": MESSAGE}], COUNT)
        said = say(body)
        request.send(*((said, 400) if isinstance(said, str) else (json.dumps(said), 200)))

    with server(handle) as address:
        return call("check", "--engine", f"{address}?chat={MESSAGE}", "--model", model, "--json", *more)


@pytest.mark.parametrize("ids", [False, True])
def test_a_right_chat_conforms_token_by_token(ids: bool, model: Path, tokenizer: Tokenizer, right: Written) -> None:
    result = check(model, lambda _: answer(tokenizer, right, True, ids), "--no-diagnose")
    assert result.exit_code == 0, result.output
    level = parsed(result)["levels"]["next_tokens"]
    assert (level["status"], level["compared"]) == ("passed", COUNT)
    assert f"greedy token equal at {COUNT} of {COUNT}; the 5 log-probabilities shown" in level["note"]


def test_text_alone_is_read_as_its_likeliest_tokens(model: Path, tokenizer: Tokenizer, right: Written) -> None:
    result = check(model, lambda _: answer(tokenizer, right, False), "--no-diagnose")
    assert result.exit_code == 0, result.output
    level = parsed(result)["levels"]["next_tokens"]
    assert (level["compared"], level["failed"]) == (COUNT, 0)
    assert "no log-probabilities were given" in level["note"]


def test_a_server_that_refuses_log_probabilities_is_judged_by_its_text(
    model: Path, tokenizer: Tokenizer, right: Written
) -> None:
    def say(body: dict[str, Any]) -> Any:
        return "logprobs are not supported" if "logprobs" in body else answer(tokenizer, right, False)

    assert check(model, say, "--no-diagnose").exit_code == 0


def test_a_wrong_chat_fails_and_its_fault_is_named(small: Path) -> None:
    tokenizer = Tokenizer(small / "tokenizer.json")
    said = with_fault("silu", small, tokenizer)
    result = check(small, lambda _: answer(tokenizer, said, True, ids=True))
    assert result.exit_code == 1
    assert [one["fault"] for one in parsed(result)["diagnosis"]["faults"]] == ["silu"]


def test_wrong_text_alone_fails_at_the_first_wrong_token(model: Path, tokenizer: Tokenizer, right: Written) -> None:
    wrong = with_fault("silu", model, tokenizer)
    first = next(n for n, (a, b) in enumerate(zip(right, wrong, strict=True)) if a[0] != b[0])
    result = check(model, lambda _: answer(tokenizer, wrong, False), "--no-diagnose")
    assert result.exit_code == 1
    position = len(tokenizer.encode(PROMPT, special=False)) - 1 + first
    assert f"first {position}: writes token" in parsed(result)["levels"]["next_tokens"]["note"]


def test_text_that_no_token_has_is_wrong(model: Path, tokenizer: Tokenizer, right: Written) -> None:
    result = check(model, lambda _: answer(tokenizer, right[:2], False, more=" zzz \N{SNOWMAN}"), "--no-diagnose")
    assert result.exit_code == 1


def test_completions_that_are_not_there_lead_to_chats(model: Path) -> None:
    with server(lambda request, _: request.send("", 404)) as address:
        result = call("check", "--engine", address, "--model", model, "--tokens", 1, "--json")
    assert result.exit_code == 3
    assert "?chat=MESSAGE judges a server that has chat completions alone" in parsed(result)["hint"]


@pytest.mark.parametrize(
    "said",
    [{"choices": []}, {"choices": [{"message": {"content": None}}]}, {"choices": [{"message": {"content": ""}}]}],
)
def test_an_answer_without_a_message_is_exit_code_3(said: Any, model: Path) -> None:
    assert check(model, lambda _: said).exit_code == 3


def test_a_model_without_a_template_is_exit_code_3(tmp_path: Path) -> None:
    write_seeded_model(tmp_path, Shape(seed=7, hidden=32, inter=32, layers=1, heads=2, kv_heads=1, context=64))
    result = call("check", "--engine", "http://127.0.0.1:9?chat=hello", "--model", tmp_path, "--json")
    assert (result.exit_code, parsed(result)["kind"]) == (3, "no-chat-template")
