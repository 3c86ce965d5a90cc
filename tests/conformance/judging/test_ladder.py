"""Each rung of the ladder finds an engine that is wrong there and nowhere else, and accuses none that is right."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.commands.judge_request import JudgeRequest
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.noise import noisy
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.judging.check import check
from tritgold_conformance.judging.judge import judge
from tritgold_conformance.questions.ladder import DEPTHS, LADDER_LEVELS, Ladder, ladder_of, plan, weights
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.report import Report

CONTEXT, VOCAB = 160, 259


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenRun:
    folder = tmp_path_factory.mktemp("ladder")
    write_seeded_model(folder, Shape(seed=4, hidden=64, inter=96, layers=1, heads=4, kv_heads=2, context=CONTEXT))
    return GoldenRun.of(open_checkpoint(folder), judging_tokens(16, VOCAB, 1))


@pytest.fixture(scope="module")
def ladder(golden: GoldenRun) -> Ladder:
    found = ladder_of(golden.checkpoint.config, golden.tokens, "quick", 1)
    assert found is not None
    return found


class Oracle:
    """Knows the golden logits of every text of the ladder, and of nothing else."""

    def __init__(self, golden: GoldenRun, ladder: Ladder) -> None:
        self.runs = [golden.of_text(text) for text in ladder.texts]
        self.calls = Counter[str]()
        self.reset()

    def reset(self) -> None:
        self.read: list[tuple[str, int]] = []
        self.tokens: list[int] = []

    def prefill(self, tokens: list[int]) -> np.ndarray | None:
        return self._answer("prefill", tokens)

    def step(self, token: int) -> np.ndarray | None:
        return self._answer("step", [token])

    def _answer(self, call: str, tokens: list[int]) -> np.ndarray | None:
        self.calls[call] += 1
        self.read.append((call, len(tokens)))
        self.tokens += tokens
        run = next(run for run in self.runs if run.tokens[: len(self.tokens)] == self.tokens)
        return self.spoilt(run.logits[len(self.tokens) - len(tokens) : len(self.tokens)].copy())

    def spoilt(self, rows: np.ndarray) -> np.ndarray | None:
        return rows


def wrong_where(where: Callable[[Oracle], bool]) -> type[Oracle]:
    class Wrong(Oracle):
        def spoilt(self, rows: np.ndarray) -> np.ndarray:
            if where(self):
                rows[-1] = np.roll(rows[-1], 1)
            return rows

    return Wrong


class ThirdTime(Oracle):
    seen: Counter[tuple[int, ...]]

    def spoilt(self, rows: np.ndarray) -> np.ndarray:
        self.seen = getattr(self, "seen", Counter())
        self.seen[tuple(self.tokens)] += 1
        return np.roll(rows, 1, axis=1) if self.seen[tuple(self.tokens)] > 3 else rows


class Declines(Oracle):
    def spoilt(self, rows: np.ndarray) -> np.ndarray | None:
        return None if self.calls["prefill"] > 9 else rows


class OnlySixtyFour(Oracle):
    def spoilt(self, rows: np.ndarray) -> np.ndarray:
        if len(self.tokens) > 64:
            raise ValueError("no room for more than 64")
        return rows


class StaleBuffer(Oracle):
    """After a prompt that is more than 64 tokens longer, rows are what the buffer held."""

    def spoilt(self, rows: np.ndarray) -> np.ndarray:
        before, self.before = getattr(self, "before", rows), rows
        return before[: len(rows)] if len(before) > len(rows) + 64 else rows


KEPT: list[int] = []


class Shared(Oracle):
    """All instances count the same tokens."""

    def reset(self) -> None:
        super().reset()
        KEPT.clear()

    def spoilt(self, rows: np.ndarray) -> np.ndarray:
        KEPT.append(0)
        return rows if len(KEPT) == len(self.read) else np.roll(rows, 1, axis=1)


class WrongId(Oracle):
    wrong = -1
    calls_wrong = ("prefill", "step")

    def spoilt(self, rows: np.ndarray) -> np.ndarray:
        for row, token in zip(rows[::-1], self.tokens[::-1], strict=False):
            row += token == self.wrong and self.read[-1][0] in self.calls_wrong
        return rows


def after_steps(engine: Oracle) -> bool:
    return engine.read[-1][0] == "prefill" and engine.read[0][0] == "step"


WRONG: dict[str, tuple[str, type[Oracle]]] = {
    "a prompt of 31": ("lengths", wrong_where(lambda e: e.read == [("prefill", 31)])),
    "a prompt of 129": ("lengths", wrong_where(lambda e: e.read == [("prefill", 129)])),
    "the whole context": ("lengths", wrong_where(lambda e: len(e.tokens) == CONTEXT and len(e.read) == 1)),
    "no room": ("lengths", OnlySixtyFour),
    "steps beyond 140": ("long_state", wrong_where(lambda e: len(e.tokens) > 140 and e.read[-1][0] == "step")),
    "the 100th step after a prefill": ("long_state", wrong_where(lambda e: len(e.read) > 100 and e.read[0][1] > 1)),
    "a prefill after steps": ("pieces", wrong_where(after_steps)),
    "a piece after more than 100 tokens": (
        "pieces",
        wrong_where(lambda e: e.read[-1][0] == "prefill" and len(e.tokens) - e.read[-1][1] > 100),
    ),
    "the fourth piece of 64 or less": ("pieces", wrong_where(lambda e: [c for c, _ in e.read] == ["prefill"] * 3)),
    "a draft late in a text": ("pieces", wrong_where(lambda e: e.read[-1] == ("prefill", 5) and len(e.tokens) > 90)),
    "a third piece": ("pieces", wrong_where(lambda e: len(e.read) > 2 and e.read[2][0] == "prefill")),
    "the same prompt for the fourth time": ("sessions", ThirdTime),
    "the 30th session": ("sessions", wrong_where(lambda e: sum(e.calls.values()) > 30)),
    "instances that share": ("sessions", Shared),
    "a buffer that a longer prompt left": ("sessions", StaleBuffer),
    "declines later": ("lengths", Declines),
}


def report_on(engine: Oracle, golden: GoldenRun, ladder: Ladder, level: str = "") -> Report:
    """Asked the sessions of one level alone, or all."""
    part = replace(ladder, rungs=[rung for rung in ladder.rungs if level in ("", rung.level)])
    under_test = EngineUnderTest(engine, "oracle", again=lambda: type(engine)(golden, ladder))
    return judge(golden, ask(under_test, golden, ladder=part), "small")


def failing(report: Report) -> set[str]:
    return {name for name, level in report.levels.items() if level.status == "failed"}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_in_one_place_fails_that_level_alone(what: str, golden: GoldenRun, ladder: Ladder) -> None:
    level, kind = WRONG[what]
    report = report_on(kind(golden, ladder), golden, ladder, level)
    assert failing(report) == {level}
    assert report.verdict == "does not conform"
    assert report.first_divergence is not None
    assert report.first_divergence.name.startswith(f"{level}: ")
    assert report.first_divergence.name in report.levels[level].note


def test_every_id_is_read(golden: GoldenRun, ladder: Ladder) -> None:
    """One id is wrong wherever it is read: whichever it is, a level fails."""
    for token in (0, 77, 201, VOCAB - 1):
        engine = WrongId(golden, ladder)
        engine.wrong = token
        assert failing(report_on(engine, golden, ladder)), token


@pytest.mark.parametrize("call", ["prefill", "step"])
def test_every_id_is_read_in_prefills_and_in_steps(call: str, golden: GoldenRun, ladder: Ladder) -> None:
    """A row of the embedding that is wrong for one of two kernels alone."""
    last = ladder.texts[max(rung.text for rung in ladder.rungs if rung.level == "vocabulary")]
    engine = WrongId(golden, ladder)
    engine.wrong, engine.calls_wrong = last[-1], (call,)
    assert sum(last[-1] in text for text in ladder.texts) == 1
    report = report_on(engine, golden, ladder)
    assert failing(report) == {"vocabulary"}
    assert ("in steps" in report.levels["vocabulary"].note) == (call == "step")


def test_a_right_engine_passes_and_its_coverage_is_said(golden: GoldenRun, ladder: Ladder) -> None:
    report = report_on(Oracle(golden, ladder), golden, ladder)
    assert {report.levels[name].status for name in LADDER_LEVELS} == {"passed"}
    c = report.coverage
    assert c is not None
    assert (c.ids_read, c.ids_stepped, c.ids_scored) == (VOCAB, VOCAB, VOCAB)
    assert (c.positions, c.in_turns) == (CONTEXT, True)
    assert {*range(1, 34), 63, 64, 65, 127, 128, 129, CONTEXT} <= {*c.lengths}
    assert c.repeats >= 5
    line = coverage_line(c)
    assert "ids 259 of 259 read, 259 in steps, 259 scored; positions 160 of 160; prompts of 1-33, " in line
    assert f"missed with {0.99**c.prefills:.1%} in {c.prefills} prefills" in line
    assert "not covered: packed_bytes, operations" in line


def test_float_noise_is_never_accused(golden: GoldenRun, ladder: Ladder) -> None:
    """Broken ties in any text are followed."""
    engine = FaultyEngine(noisy(Mutant(golden.checkpoint), 3, times=4.0), CONTEXT)
    part = replace(ladder, rungs=[r for r in ladder.rungs if "prefill of" in r.session.id or r.level == "vocabulary"])
    evidence = ask(EngineUnderTest(Logits(engine)), golden, ladder=part)
    report = judge(golden, evidence, "small")
    assert not failing(report), report.levels
    assert "broken ties followed" in report.levels["lengths"].note


class Logits:
    """Only the logits of an engine."""

    def __init__(self, engine: FaultyEngine) -> None:
        self.reset, self.prefill, self.step = engine.reset, engine.prefill, engine.step


def test_each_session_is_asked_once(golden: GoldenRun, ladder: Ladder) -> None:
    engine = Oracle(golden, ladder)
    count = len(golden.tokens)
    ask(EngineUnderTest(engine, again=lambda: Oracle(golden, ladder)), golden, ladder=ladder)
    beside = {rung.session.beside for rung in ladder.rungs}
    mine = [call for rung in ladder.rungs if rung.session.id not in beside for call in rung.session.calls]
    assert engine.calls == Counter(mine) + Counter({"prefill": 3, "step": count // 4 + count})


class WrongWhenTimed(Oracle):
    def spoilt(self, rows: np.ndarray) -> np.ndarray:
        return np.roll(rows, 1, axis=1) if self.calls["prefill"] > 5 else rows


def test_a_wrong_answer_has_no_speed(golden: GoldenRun, ladder: Ladder) -> None:
    one_text = replace(ladder, texts=[golden.tokens])
    report, _ = check(golden, EngineUnderTest(WrongWhenTimed(golden, one_text)), "small")
    assert failing(report) == {"timed"}
    assert report.verdict == "does not conform"
    assert (report.engine.speed, report.reference.speed) == (None, None)
    assert "prefill, run" in report.levels["timed"].note
    right, _ = check(golden, EngineUnderTest(Oracle(golden, one_text)), "small")
    assert (right.verdict, right.levels["timed"].status) == ("conforms", "passed")
    assert right.engine.speed is not None
    assert right.coverage is not None
    assert right.coverage.timed


def test_the_ladder_follows_from_its_arguments(golden: GoldenRun) -> None:
    config, tokens = golden.checkpoint.config, golden.tokens
    assert ladder_of(config, tokens, "quick", 5) == ladder_of(config, tokens, "quick", 5)
    texts = [found.texts for seed in (5, 6) if (found := ladder_of(config, tokens, "quick", seed)) is not None]
    assert texts[0][0] == texts[1][0] == tokens
    assert texts[0][1] != texts[1][1]
    assert ladder_of(config, tokens, "one-text", 1) is None


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_ladder_fits_its_model(depth: str) -> None:
    """Ids within the vocabulary, positions within the context, and for a large model no text of its own."""
    small = ModelConfig(
        vocab=7, hidden=32, inter=32, layers=1, heads=2, kv_heads=1, head_dim=16, context=6, norm_eps=1e-5,
        rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply", eos=(6, 2),
    )  # fmt: skip
    large = replace(small, vocab=128_256, hidden=2560, inter=6912, layers=30, heads=20, head_dim=128, context=4096)
    for config, count in ((small, 6), (small, 1), (large, 40)):
        found = ladder_of(config, judging_tokens(count, config.vocab, 1), depth, 3)
        assert found is not None
        assert all(0 <= i < config.vocab for text in found.texts for i in text)
        assert found.longest <= config.context
        assert all(sum(r.session.chunks) == len(r.session.tokens) > 0 for r in found.rungs)
        assert len({rung.session.id for rung in found.rungs}) == len(found.rungs)
        if config is large and depth != "thorough":
            assert found.longest == 40
            assert sum(map(len, found.texts)) <= 40 + 40 + 40 + 5
        if config is large and depth == "thorough":
            read = len({token for text in found.texts for token in text})
            assert sum(map(len, found.texts)) * weights(config) <= 1.5 * DEPTHS["thorough"][0]
            assert sum(len(r.session.tokens) for r in found.rungs) * config.vocab * 4 < 3e9, "bytes of logits"
            assert (found.longest, read > 400) == (129, True)
            told = f"thorough: positions 129 of 4,096 and ids {read:,} of 128,256 in {len(found.rungs)} sessions"
            assert plan(found, config) == f"{told}, as many as ten minutes are planned for"


def test_thorough_says_its_plan_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seeded_model(tmp_path, Shape(hidden=64, inter=96, layers=1, heads=4, kv_heads=2, context=8))
    for depth, told in (("quick", ""), ("thorough", "thorough: positions 8 of 8 and ids 259 of 259 in ")):
        with JudgeRequest("reference", model=str(tmp_path), tokens=2, depth=depth).opened():
            shown = capsys.readouterr().err
        assert shown.startswith(told)
        assert bool(shown) == bool(told)
        assert "ten minutes" not in shown


def test_a_report_with_a_verdict_has_its_coverage(golden: GoldenRun, ladder: Ladder, tmp_path: Path) -> None:
    from tritgold.errors import FormatError
    from tritgold_conformance.results.report import read_report, to_json

    report = report_on(Oracle(golden, ladder), golden, ladder, "pieces")
    (tmp_path / "r.json").write_bytes(to_json(report))
    assert read_report(tmp_path / "r.json").coverage == report.coverage
    report.coverage = None
    (tmp_path / "r.json").write_bytes(to_json(report))
    with pytest.raises(FormatError, match="no coverage"):
        read_report(tmp_path / "r.json")
