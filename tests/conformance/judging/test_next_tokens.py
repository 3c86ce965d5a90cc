"""What an engine writes next, without a server: greedy tokens alone, near ties, and broken ties that are followed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from asked_once import judge
from next_token_rows import COUNT, log_probabilities, small_golden

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import embedded_model
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.comparing import next_tokens, tie_search
from tritgold_conformance.comparing.ties import TIE, distance_from_tie, other_codes
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.golden.run import GoldenRun, judging_tokens


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenRun:
    return small_golden(tmp_path_factory.mktemp("small"))


def test_greedy_alone_passes_and_fails(golden: GoldenRun) -> None:
    """No log-probabilities: held to what broken ties may exchange, and the note says that none were given."""

    class Greedy:
        def __init__(self, tokens: list[int]) -> None:
            self.tokens = tokens

        def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
            return self.tokens[len(tokens) - 1], {}

    right = np.argmax(golden.logits, axis=1).tolist()
    report = judge(golden, EngineUnderTest(Greedy(right)), "small")
    assert report.exit_code == 0
    assert "no log-probabilities were given" in report.levels["next_tokens"].note
    report = judge(golden, EngineUnderTest(Greedy([*right[:-1], int(np.argmin(golden.logits[-1]))])), "small")
    assert (report.exit_code, report.levels["next_tokens"].failed) == (1, 1)


def test_two_tokens_as_likely_may_be_exchanged(golden: GoldenRun) -> None:
    """Their log-probabilities differ by less than float noise."""
    rows = log_probabilities(golden.logits)
    order = np.argsort(-rows[0])
    logits = golden.logits.copy()
    logits[0, order[1]] = logits[0, order[0]] - np.float32(1e-6)
    arrays = {**golden.trace.arrays, "logits": logits}
    twin = GoldenRun(golden.checkpoint, golden.tokens, golden.trace.__class__(arrays=arrays))
    rows = log_probabilities(logits)

    class Exchanged:
        def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
            row = rows[len(tokens) - 1]
            best = np.argsort(-row)[:5].tolist()
            return int(order[1]) if len(tokens) == 1 else best[0], {i: float(row[i]) for i in best}

    report = judge(twin, EngineUnderTest(Exchanged()), "small")
    assert report.levels["next_tokens"].status == "passed"
    assert "(1 near ties)" in report.levels["next_tokens"].note


def breaks_ties(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every code near a tie goes to the other side, and no other."""
    codes, scale = GOLDEN_ARITHMETIC.quantize(x)
    others = other_codes(x, scale, codes)
    return np.where(distance_from_tie(x, scale, codes, others) < 1e-4, others, codes).astype(np.int8), scale


class Broken:
    """Right, its codes at ties being others; ``shift`` moves its log-probabilities, ``shown`` is how many it shows."""

    def __init__(self, golden: GoldenRun, shown: int, shift: float = 0.0) -> None:
        arithmetic = replace(GOLDEN_ARITHMETIC, quantize=breaks_ties)
        engine = GoldenRun.of(golden.checkpoint, golden.tokens, arithmetic)
        assert not np.array_equal(engine.logits, golden.logits), "this input has codes near a tie"
        self.rows, self.shown = log_probabilities(engine.logits) + shift, shown

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        row = self.rows[len(tokens) - 1]
        best = np.argsort(-row).tolist()
        return best[0], {i: float(row[i]) for i in best[: self.shown]}


def test_a_broken_tie_is_followed_from_the_likeliest_tokens_alone(golden: GoldenRun) -> None:
    report = judge(golden, EngineUnderTest(Broken(golden, shown=10)), "small")
    assert report.levels["next_tokens"].status == "passed", report.levels["next_tokens"].note
    assert "broken ties followed" in report.levels["next_tokens"].note


def test_ties_too_many_to_search_leave_the_golden_model_s_own_spread(
    golden: GoldenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritgold_conformance.comparing.tie_search.SEARCHABLE", 0)
    report = judge(golden, EngineUnderTest(Broken(golden, shown=10)), "small")
    assert report.levels["next_tokens"].status == "passed", report.levels["next_tokens"].note
    assert "held to the golden model's own spread" in report.levels["next_tokens"].note
    report = judge(golden, EngineUnderTest(Broken(golden, shown=10, shift=5.0)), "small")
    assert report.levels["next_tokens"].failed == COUNT


@pytest.mark.parametrize(("easy", "judged"), [(TIE, "within the spread"), (0.0, "by the search")])
def test_more_sets_of_easy_ties_than_are_tried_leave_the_spread(
    golden: GoldenRun, monkeypatch: pytest.MonkeyPatch, easy: float, judged: str
) -> None:
    """Where the ties that noise breaks as easily as not have more sets than are tried, no engine is accused of them."""
    monkeypatch.setattr(tie_search, "MAX_TRIALS", 1)
    monkeypatch.setattr(next_tokens, "resolve_ties", partial(tie_search.resolve_ties, trials=1))
    monkeypatch.setattr(tie_search, "EASY", easy)
    level = judge(golden, EngineUnderTest(Broken(golden, shown=10)), "small").levels["next_tokens"]
    assert level.status == ("passed" if judged == "within the spread" else "failed"), level.note
    assert ("held to the golden model's own spread" in level.note) == (level.status == "passed")
    if level.status == "passed":  # and a fault is still seen
        report = judge(golden, EngineUnderTest(Broken(golden, shown=10, shift=5.0)), "small")
        assert report.levels["next_tokens"].failed == COUNT


class ModestlyOff:
    """All is right but the log-probability of one token of each row, the n-th likeliest: off by 0.35."""

    def __init__(self, golden: GoldenRun, n: int) -> None:
        self.rows, self.n = log_probabilities(golden.logits), n

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        row = self.rows[len(tokens) - 1]
        best = np.argsort(-row).tolist()[:20]
        return best[0], {i: float(row[i]) - (0.35 if i == best[self.n] else 0.0) for i in best}


def test_a_spread_of_the_unlikely_says_nothing_of_the_likeliest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritgold_conformance.comparing.tie_search.SEARCHABLE", 0)
    with embedded_model("seeded") as path:
        golden = GoldenRun.of(open_checkpoint(path), judging_tokens(12, 259, seed=3))
    report = judge(golden, EngineUnderTest(ModestlyOff(golden, 19)), "seeded")
    assert report.levels["next_tokens"].status == "passed", "a control: broken ties move it by more"
    report = judge(golden, EngineUnderTest(ModestlyOff(golden, 0)), "seeded")
    assert report.levels["next_tokens"].failed > 6, report.levels["next_tokens"].note


def test_tokens_alone_may_be_those_behind_broken_ties(golden: GoldenRun) -> None:
    assert judge(golden, EngineUnderTest(Broken(golden, shown=0)), "small").levels["next_tokens"].status == "passed"
