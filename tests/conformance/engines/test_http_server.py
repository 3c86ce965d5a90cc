"""Servers as engines: right ones in two dialects, and wrong ones."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked_once import judge
from http_test_server import Handler, server
from next_token_rows import COUNT, Rows, log_probabilities

from tritgold.errors import EngineError
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.results.report import Report

Answer = Callable[[list[int], int], Any]


def llama_cpp(row: Rows, count: int, token: int | None = None) -> dict[str, Any]:
    """As llama.cpp's server answers."""
    best = np.argsort(-row, kind="stable")[:count].tolist()
    shown = [{"id": i, "token": f"t{i}", "logprob": float(row[i])} for i in best]
    written = {"id": best[0] if token is None else token, "token": "t", "logprob": 0.0, "top_logprobs": shown}
    return {"choices": [{"text": "t", "logprobs": {"content": [written]}}]}


def vllm(row: Rows, count: int) -> dict[str, Any]:
    """As vLLM answers where token ids are asked for."""
    best = np.argsort(-row, kind="stable")[:count].tolist()
    shown = {f"token_id:{i}": float(row[i]) for i in best}
    return {"choices": [{"text": "t", "logprobs": {"tokens": [f"token_id:{best[0]}"], "top_logprobs": [shown]}}]}


def judged(golden: GoldenRun, model: Path, answer: Answer, query: str = "") -> Report:
    """answer(prompt, count) -> what the server says, an object or text."""

    def handle(request: Handler, body: dict[str, Any]) -> None:
        assert request.path == "/v1/completions"
        assert (body["max_tokens"], body["temperature"], body["model"]) == (1, 0, "small")
        said = answer(body["prompt"], body["logprobs"])
        request.send(said if isinstance(said, str | bytes) else json.dumps(said))

    with server(handle) as address:
        engine = load_engine(address + query, model, golden.checkpoint, COUNT, 20)
        return judge(golden, engine, "small", with_speed=False)


def rows_of(golden: GoldenRun, change: Callable[[Rows], Rows] = lambda rows: rows) -> Callable[[list[int]], Rows]:
    """The golden log-probabilities after a prompt, changed."""
    rows = change(log_probabilities(golden.logits))
    return lambda prompt: rows[len(prompt) - 1] if prompt == golden.tokens[: len(prompt)] else rows[0] * np.nan


@pytest.mark.parametrize("dialect", [llama_cpp, vllm])
def test_a_right_server_conforms_as_far_as_it_can_be_seen(golden: GoldenRun, model: Path, dialect: Any) -> None:
    row = rows_of(golden)
    report = judged(golden, model, lambda prompt, count: dialect(row(prompt), count))
    assert report.exit_code == 0
    assert {name for name, level in report.levels.items() if level.status == "passed"} == {"next_tokens"}
    assert {level.status for name, level in report.levels.items() if name != "next_tokens"} == {"not assessed"}
    assert report.levels["next_tokens"].compared == COUNT
    assert f"greedy token equal at {COUNT} of {COUNT}; the 20 log-probabilities" in report.levels["next_tokens"].note
    assert report.engine.versions["model"] == "small"


def test_how_many_are_shown_can_be_said(golden: GoldenRun, model: Path) -> None:
    row = rows_of(golden)
    report = judged(golden, model, lambda prompt, count: llama_cpp(row(prompt), count), query="?logprobs=5")
    assert report.text is not None
    assert {position.shown for position in report.text.positions} == {5}


SECONDS_A_TOKEN = 2e-3


@pytest.mark.parametrize("says_usage", [True, False])
def test_its_speed_is_measured_by_the_judge_s_clock(golden: GoldenRun, model: Path, says_usage: bool) -> None:
    """A server that sleeps for each token read that is new to it, and for each one written."""
    row, seen = rows_of(golden), set[tuple[int, ...]]()

    def handle(request: Handler, body: dict[str, Any]) -> None:
        prompt, count = body["prompt"], body["max_tokens"]
        known = max((n for n in range(len(prompt) + 1) if tuple(prompt[:n]) in seen), default=0)
        seen.update(tuple(prompt[:n]) for n in range(1, len(prompt) + 1))
        time.sleep(SECONDS_A_TOKEN * (len(prompt) - known + count - 1))
        said = llama_cpp(row(prompt), 20) if "logprobs" in body else {"choices": [{"text": "t"}]}
        request.send(json.dumps(said | ({"usage": {"completion_tokens": count}} if says_usage else {})))

    with server(handle) as address:
        report = judge(golden, load_engine(address, model, golden.checkpoint, COUNT, 20), "small")
    speed = report.engine.speed
    assert speed is not None
    assert (speed.tokens, speed.clock, report.exit_code) == (COUNT, "judge", 0)
    assert speed.prefill is not None
    assert speed.prefill <= 1 / SECONDS_A_TOKEN, "no cache may answer"
    assert (speed.decode is not None) == says_usage
    if speed.decode is not None:
        assert speed.decode < 1.2 / SECONDS_A_TOKEN, "the time to read the prompt and to answer is taken off"


WRONG: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "temperature": (lambda rows: rows * 1.001, "log-probability of token"),
    "another row": (lambda rows: np.roll(rows, 1, axis=0), "9 of 9 positions"),
    "one position": (lambda rows: rows + np.eye(COUNT)[:, [4]] * 1e-2, "1 of 9 positions, first 4: log-prob"),
    "not a number": (lambda rows: np.where(np.eye(COUNT, 259, 2) > 0, np.nan, rows), "non-finite"),
    "infinity": (lambda rows: np.where(rows == rows.max(), np.inf, rows), "non-finite"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_server_does_not_conform(golden: GoldenRun, model: Path, fault: str) -> None:
    change, says = WRONG[fault]
    row = rows_of(golden, change)
    report = judged(golden, model, lambda prompt, count: llama_cpp(row(prompt), 259))
    assert report.exit_code == 1
    assert says in report.levels["next_tokens"].note


def test_a_likely_token_that_is_left_out_is_missed(golden: GoldenRun, model: Path) -> None:
    """Each number that it shows is right; the second likeliest is not among them."""
    row = rows_of(golden)

    def answer(prompt: list[int], count: int) -> Any:
        said = llama_cpp(row(prompt), count)
        del said["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]
        return said

    report = judged(golden, model, answer)
    assert report.exit_code == 1
    assert "is not shown, though" in report.levels["next_tokens"].note


@pytest.mark.parametrize(("written", "says"), [(-2, "writes token"), (None, "token 259 is outside the vocabulary")])
def test_another_token_than_the_likeliest_is_wrong(
    golden: GoldenRun, model: Path, written: int | None, says: str
) -> None:
    """written: its place in the order of likelihood."""
    row = rows_of(golden)

    def answer(prompt: list[int], count: int) -> Any:
        return llama_cpp(row(prompt), count, 259 if written is None else int(np.argsort(row(prompt))[written]))

    report = judged(golden, model, answer)
    assert report.exit_code == 1
    assert says in report.levels["next_tokens"].note


def test_positions_without_log_probabilities_are_counted(golden: GoldenRun, model: Path) -> None:
    """llama.cpp shows none where the token is a part of a character."""
    row = rows_of(golden)
    nothing = {"choices": [{"text": "", "logprobs": None}]}
    report = judged(golden, model, lambda p, n: llama_cpp(row(p), n) if len(p) % 2 else nothing)
    assert (report.exit_code, report.levels["next_tokens"].compared, report.levels["next_tokens"].not_assessed) == (
        0,
        5,
        4,
    )
    report = judged(golden, model, lambda p, n: nothing)
    assert (report.exit_code, report.levels["next_tokens"].status) == (5, "not assessed")


def content(**written: Any) -> Any:
    """An answer in llama.cpp's form with one token in it."""
    return {"choices": [{"logprobs": {"content": [written]}}]}


HOSTILE: dict[str, tuple[Any, str]] = {
    "nothing": ("", "is not JSON"),
    "garbage": ("{'choices'", "is not JSON"),
    "binary": (b"\xff\xfe", "is not JSON"),
    "deep": ("[" * 100_000, "is not JSON"),
    "a list": ([], "no choices"),
    "no choices": ({"choices": []}, "no choices"),
    "text alone": (
        {"choices": [{"logprobs": {"tokens": ["a"], "top_logprobs": [{"a": -1}]}}]},
        "named by their text",
    ),
    "no ids": (content(token="a", logprob=0, top_logprobs=[]), "unknown form"),
    "odd ids": (content(id=True, top_logprobs=[]), "unknown form"),
    "twice": (content(id=1, top_logprobs=[{"id": 1, "logprob": -1}] * 2), "shown twice"),
    "no number": (content(id=1, top_logprobs=[{"id": 1, "logprob": "-1"}]), "without a number"),
    "huge": (" " * (1 << 22), "answers too much"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_answer_of_another_form_is_not_judged(golden: GoldenRun, model: Path, case: str) -> None:
    said, says = HOSTILE[case]
    with pytest.raises(EngineError) as refused:
        judged(golden, model, lambda prompt, count: said)
    assert refused.value.kind == ("engine-output-size" if case == "huge" else "engine-output")
    assert says in str(refused.value)


@pytest.mark.parametrize("bad", [0, 2])
def test_one_bad_answer_is_one_position(golden: GoldenRun, model: Path, bad: int) -> None:
    rows = rows_of(golden)

    def handle(request: Handler, body: dict[str, Any]) -> None:
        if len(body["prompt"]) == bad + 1:
            request.send("half a character", 500)
        else:
            request.send(json.dumps(llama_cpp(rows(body["prompt"]), body["logprobs"])))

    with server(handle) as address:
        report = judge(golden, load_engine(address, model, golden.checkpoint, COUNT, 20), "small", with_speed=False)
    level = report.levels["next_tokens"]
    assert (report.verdict, level.compared, level.not_assessed) == ("conforms", COUNT - 1, 1)
    assert f"first next_tokens {bad}: " in level.note
    assert "status 500: half a character" in level.note


def tempered(rows: Rows) -> Rows:
    cold = rows / 0.7
    return cold - np.log(np.exp(cold).sum(axis=1, keepdims=True))


def filtered(rows: Rows) -> Rows:
    """The eight likeliest, which are all that is left."""
    kept = np.where(rows >= np.sort(rows, axis=1)[:, -8:-7], rows, -np.inf)
    return kept - np.log(np.exp(kept).sum(axis=1, keepdims=True))


def rest_twice(rows: Rows) -> Rows:
    """The softmax over all tokens, and those that are not among the 20 likeliest once more."""
    rest = 1 - np.exp(np.sort(rows, axis=1)[:, -20:]).sum(axis=1, keepdims=True)
    return rows - np.log1p(rest)


def one_hot(rows: Rows) -> Rows:
    return np.where(rows == rows.max(axis=1, keepdims=True), 0.0, -60.0)


def one_hot_elsewhere(rows: Rows) -> Rows:
    """Wrong, with logits far apart: it may well be what the server computes."""
    return np.roll(one_hot(rows), 1, axis=1)


@pytest.mark.parametrize(
    ("change", "said", "count"),
    [
        (tempered, "log-probabilities at temperature 0.7", 20),
        (filtered, "probabilities of the tokens that a filter keeps", 8),
        (one_hot, "probabilities after greedy sampling", 20),
        (one_hot_elsewhere, "probabilities that one token has all of, which say no more than the token", 20),
        (rest_twice, "probabilities whose sum has the tokens that are not shown twice", 20),
    ],
)
def test_what_sampling_did_to_probabilities_is_named(
    golden: GoldenRun, model: Path, change: Callable[[Rows], Rows], said: str, count: int
) -> None:
    rows = rows_of(golden, change)
    report = judged(golden, model, lambda prompt, asked: llama_cpp(rows(prompt), min(count, asked)))
    assert report.verdict == "does not conform"
    assert f"shown are {said}" in report.levels["next_tokens"].note


def test_a_server_writes_a_text(golden: GoldenRun, model: Path) -> None:
    asked = []

    def handle(request: Handler, body: dict[str, Any]) -> None:
        asked.append(body)
        request.send(json.dumps({"choices": [{"text": " 95"}]}))

    with server(handle) as address:
        engine = load_engine(address, model, golden.checkpoint, COUNT, 20)
        assert engine.has("write")
        assert engine.ask("write", [1, 2], 7) == " 95"
    (body,) = asked
    assert (body["prompt"], body["max_tokens"], body["temperature"]) == ([1, 2], 7, 0)
    assert "logprobs" not in body


@pytest.mark.parametrize("said", [{}, {"choices": []}, {"choices": [{"text": 3}]}, {"choices": ["95"]}, []])
def test_what_is_not_a_text_is_refused(golden: GoldenRun, model: Path, said: Any) -> None:
    with server(lambda request, body: request.send(json.dumps(said))) as address:
        engine = load_engine(address, model, golden.checkpoint, COUNT, 20)
        with pytest.raises(EngineError) as refused:
            engine.ask("write", [1, 2], 7)
    assert refused.value.kind == "engine-output"
