"""Scores: shares with their intervals, right and wrong answers, engines that show logits, generate, or write."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.skills import Question
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.questions import exam
from tritgold_conformance.scoring import greedy
from tritgold_conformance.scoring.summary import summary, wilson

TASKS, LEVELS = ("add", "copy", "json"), ("middle",)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tiny")
    write_seeded_model(folder, Shape(hidden=64, inter=64, layers=1, heads=2, kv_heads=1, context=64))
    return open_checkpoint(folder)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return Tokenizer(Path(checkpoint.path) / "tokenizer.json")


@pytest.fixture(scope="module")
def asked(tokenizer: Tokenizer) -> list[exam.Item]:
    return exam.items(tokenizer, TASKS, LEVELS, 4)


class Knowing:
    """Knows every answer but those to the tasks in ``wrong``; shows logits, generates or writes, as it is asked to."""

    def __init__(self, asked: list[exam.Item], config: Any, how: str, wrong: tuple[str, ...] = ()) -> None:
        self._vocab, self._end = config.vocab, config.eos[0]
        self._said = {tuple(i.prompt): self._answer(i, wrong) for i in asked}
        setattr(self, how, getattr(self, f"_{how}"))

    def _answer(self, item: exam.Item, wrong: tuple[str, ...]) -> tuple[list[int], str]:
        if item.task in wrong:  # the right answer with one character more
            return [*item.answer, item.answer[-1], self._end], item.question.answer + item.question.answer[-1]
        return [*item.answer, self._end], item.question.answer

    def reset(self) -> None:
        self._read: list[int] = []

    def _prefill(self, tokens: list[int]) -> np.ndarray:
        return np.array([self._step(token) for token in tokens])

    def _step(self, token: int) -> np.ndarray:
        self._read.append(token)
        row = np.zeros(self._vocab)
        for prompt, (answer, _) in self._said.items():
            if tuple(self._read[: len(prompt)]) == prompt:
                after = self._read[len(prompt) :]
                if after == answer[: len(after)] and len(after) < len(answer):
                    row[answer[len(after)]] = 1
        return row

    def _generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> list[int]:
        return self._said[tuple(prompt)][0][:max_tokens]

    def _complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        self._read = list(tokens[:-1])
        return int(np.argmax(self._step(tokens[-1]))), {}

    def _write(self, prompt: list[int], max_tokens: int) -> str:
        return self._said[tuple(prompt)][1] + "\n1 + 1 = 2"


@pytest.mark.parametrize("how", ["prefill", "step", "generate", "complete", "write"])
def test_every_way_of_answering_is_scored_alike(
    how: str, asked: list[exam.Item], checkpoint: Checkpoint, tokenizer: Tokenizer
) -> None:
    heard: list[int] = []
    engine = EngineUnderTest(Knowing(asked, checkpoint.config, how, wrong=("copy",)), config=checkpoint.config)
    answers = greedy.score(engine, asked, checkpoint.config, tokenizer, heard.append)
    assert heard == list(range(1, len(asked) + 1))
    rows = {row["task"]: row for row in summary(asked, answers)}
    assert [rows[task]["right"] for task in (*TASKS, "all")] == [4, 0, 4, 8]
    assert rows["all"]["of"] == 12


def test_a_program_that_gives_no_logits_writes_its_answers(
    asked: list[exam.Item], checkpoint: Checkpoint, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EngineUnderTest(Knowing(asked, checkpoint.config, "generate"), config=checkpoint.config)
    monkeypatch.setattr(engine, "has", lambda name: name != "write")  # a program may answer anything
    monkeypatch.setattr(engine, "read", lambda sessions: [None for _ in sessions])
    answers = greedy.score(engine, asked, checkpoint.config, tokenizer)
    assert [answer.right for answer in answers] == [True] * len(asked)
    monkeypatch.setattr(engine, "has", lambda name: name == "prefill")
    with pytest.raises(EngineError, match="shows no logits"):
        greedy.score(engine, asked, checkpoint.config, tokenizer)


def test_a_program_that_shows_the_next_token_alone_is_scored_by_it(
    asked: list[exam.Item], checkpoint: Checkpoint, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once got no answer right: what it did not generate was taken for an empty answer."""
    knowing = Knowing(asked, checkpoint.config, "complete", wrong=("copy",))
    engine = EngineUnderTest(knowing, config=checkpoint.config)
    offered = {"prefill", "generate", "complete"}  # a program may answer anything, until it was asked
    monkeypatch.setattr(engine, "has", offered.__contains__)
    monkeypatch.setattr(engine, "read", lambda sessions: [None for _ in sessions])
    monkeypatch.setattr(engine, "ask", lambda name, *given: offered.discard(name))
    answers = greedy.score(engine, asked, checkpoint.config, tokenizer)
    assert [answer.right for answer in answers] == [item.task != "copy" for item in asked]


def test_a_line_break_ends_an_answer_as_the_end_of_sequence_does(
    asked: list[exam.Item], checkpoint: Checkpoint, tokenizer: Tokenizer
) -> None:
    over = exam.ends(tokenizer, checkpoint.config)
    assert over == {*checkpoint.config.eos, ord("\n")}
    item = asked[0]
    for end, right in ((checkpoint.config.eos[0], True), (ord("\n"), True), (item.answer[-1], False)):
        assert exam.by_ids([*item.answer, end, 5], item, over, tokenizer).right is right
    assert not exam.by_ids(item.answer, item, over, tokenizer).right  # it does not end


def test_an_engine_that_writes_nothing_is_not_scored(
    asked: list[exam.Item], checkpoint: Checkpoint, tokenizer: Tokenizer
) -> None:
    class Silent:
        def unpack(self) -> None:
            """Something, but no text."""

    with pytest.raises(EngineError) as refused:
        greedy.score(EngineUnderTest(Silent()), asked, checkpoint.config, tokenizer)
    assert refused.value.kind == "engine-protocol"


def test_an_item_is_the_question_as_the_tokenizer_has_it(asked: list[exam.Item], tokenizer: Tokenizer) -> None:
    for item in asked:
        assert tokenizer.decode(item.prompt[1:]) == item.question.prompt
        assert tokenizer.decode(item.answer) == item.question.answer


@pytest.mark.parametrize(
    ("text", "right"),
    [(" 95", True), ("95\n", True), ("\n95", True), (" 95 ", True), (" 955", False), (" 9 5", False), ("", False)],
)
def test_what_counts_as_right(text: str, right: bool) -> None:
    assert exam.is_right(text, Question("", "37 + 58", "95")) is right


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    # From the closed form with z = 1.959964 in exact arithmetic, by hand for 0 and 1 of 1.
    [(0, 1, 0.0, 0.793450), (1, 1, 0.206550, 1.0), (50, 100, 0.403832, 0.596168), (98, 100, 0.930000, 0.994498)],
)
def test_wilson(right: int, of: int, low: float, high: float) -> None:
    assert wilson(right, of) == pytest.approx((low, high), abs=2e-5)


def test_more_questions_make_the_interval_narrower() -> None:
    widths = [high - low for low, high in (wilson(n - n // 10, n) for n in (10, 100, 1000))]
    assert widths == sorted(widths, reverse=True)
