"""Each check of the judgement can fail: spoilt peers, and judgements that hide something; the search at its limit."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judging import Judged, assert_agrees, judge, judge_peer

from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.comparing.free_running import compare_traces
from tritgold_conformance.comparing.logits import judge_logits
from tritgold_conformance.comparing.ties import distance_from_tie, follow_ties, other_codes
from tritgold_conformance.golden.run import GoldenRun

FIXTURES = Path(__file__).parent / "fixtures"
Arrays = dict[str, np.ndarray]
Change = Callable[[Arrays, np.ndarray], object]


@pytest.fixture(scope="module")
def plain() -> Judged:
    return judge(FIXTURES / "bitnet-auto-offline-tied")


@pytest.fixture(scope="module")
def tied() -> Judged:
    return judge(FIXTURES / "bitnet-auto-online-untied")


def _one_code(by: int) -> Change:
    def change(arrays: Arrays, logits: np.ndarray) -> None:
        row = arrays["layers.1.down_in.codes"][17]
        row[np.argmin(np.abs(row.astype(int)))] += by

    return change


def _set_logit(value: float) -> Change:
    def change(arrays: Arrays, logits: np.ndarray) -> None:
        logits[17, 5] += value * np.abs(logits[17]).max()

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_one_code(1), r"layers\.1\.down_in\.codes: 1 of 6400 differ"),
        (_one_code(2), r"layers\.1\.down_in\.codes: 1 of 6400 differ"),
        (_set_logit(1e-4), r"logits: 1 of 4040 differ.* at \[17, 5\].*\nlogits alone: 1 of 40 positions, first 17: "),
        (_set_logit(np.nan), r"logits: non-finite.*\nlogits alone: non-finite"),
        (lambda arrays, _: arrays.pop("layers.1.up.out"), r"layers\.1\.up\.out: not in the peer"),
        (lambda arrays, logits: arrays.update({"layers.0.bias": logits}), r"layers\.0\.bias: in the peer, not in our"),
        (lambda arrays, _: arrays["layers.1.up.out"].__setitem__((3, 2), np.inf), r"layers\.1\.up\.out: non-finite"),
        (lambda arrays, _: arrays["layers.1.up.out"].__imul__(np.float32(1.0001)), r"layers\.1\.up\.out: 754 of 960"),
        (lambda arrays, _: arrays["layers.1.down_in.scale"].__imul__(2), r"layers\.1\.down_in\.scale: all 40 differ"),
    ],
)
def test_a_spoilt_peer(plain: Judged, change: Change, problem: str) -> None:
    arrays, logits = {name: array.copy() for name, array in plain.peer.arrays.items()}, plain.peer.logits.copy()
    change(arrays, logits)
    spoilt = replace(plain.peer, arrays=arrays, logits=logits)
    with pytest.raises(AssertionError, match=f"^{problem}"):
        assert_agrees(judge_peer(plain.golden, spoilt, plain.provenance))


def test_other_trits(plain: Judged) -> None:
    digests = plain.provenance["trits_sha256"]
    shifted = dict(zip(digests, [*list(digests.values())[1:], "0"], strict=True))
    with pytest.raises(AssertionError, match=r"^trits: others than the peer's$"):
        assert_agrees(replace(plain, provenance=plain.provenance | {"trits_sha256": shifted}))


def test_a_code_at_a_tie_is_followed_and_no_other(tied: Judged) -> None:
    (name, codes), *_ = [(tie.name, tied.peer.arrays[tie.name].copy()) for tie in tied.ties]
    codes[0, 0] += 2
    spoilt = judge_peer(tied.golden, replace(tied.peer, arrays=tied.peer.arrays | {name: codes}), tied.provenance)
    assert tied.ties
    assert spoilt.ties == []
    with pytest.raises(AssertionError, match=rf"^{re.escape(name)}: 1 of .* at \[0, 0\]"):
        assert_agrees(spoilt)


def test_a_tie_that_was_not_followed(tied: Judged) -> None:
    walk = compare_traces(tied.golden.trace.arrays, tied.peer.whole, len(tied.peer.tokens))
    with pytest.raises(AssertionError, match=r"^layers.*: differs at ties that were not followed"):
        assert_agrees(replace(tied, whole=walk))


def test_a_tie_of_the_search_that_is_not_among_the_codes(tied: Judged) -> None:
    with pytest.raises(AssertionError, match=r"^logits alone: BrokenTie.* is not among the codes"):
        assert_agrees(replace(tied, ties=[]))


def test_too_many_ties(plain: Judged) -> None:
    """A quantiser that is off by so little that every difference is within TIE of a tie."""

    def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = GOLDEN_ARITHMETIC.quantize(x)[1]
        return np.rint(x * scale[:, None] + np.float32(5e-4)).astype(np.int8), scale

    wrong = GoldenRun.of(plain.golden.checkpoint, plain.golden.tokens, replace(GOLDEN_ARITHMETIC, quantize=quantize))
    judged = judge_peer(wrong, plain.peer, plain.provenance)
    assert judged.first_wrong is None
    with pytest.raises(AssertionError, match=r"^ties: in .* of 320 quantised rows"):
        assert_agrees(judged)


def test_every_exact_tie_broken_the_other_way_is_found_from_logits_alone() -> None:
    """Six at one position of this model, in each query head of a group: more than chance breaks, each to be found."""
    golden = judge(FIXTURES / "llama-bitlinear-head-dim").golden

    def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scale = GOLDEN_ARITHMETIC.quantize(x)
        other = other_codes(x, scale, codes).astype(np.int8)
        return np.where(distance_from_tie(x, scale, codes, other) < 1e-5, other, codes), scale

    engine = GoldenRun.of(golden.checkpoint, golden.tokens, replace(GOLDEN_ARITHMETIC, quantize=quantize))
    verdict = judge_logits("prefill", golden, engine.logits)
    assert verdict.passed
    assert set(verdict.ties) == set(follow_ties(golden, engine.trace.arrays)[1])
    assert sum(tie.position == 0 for tie in verdict.ties) == 12
