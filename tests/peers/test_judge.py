"""The judge of the conformance suite on transformers' recorded answers: it finds and follows the ties by itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer_trace import Peer

from tritgold_conformance.engine import Candidate
from tritgold_conformance.golden import GoldenRun, golden_run
from tritgold_conformance.judge import judge
from tritgold_conformance.report import Report

FIXTURES = Path(__file__).with_name("fixtures")
CASES = sorted(path.name for path in FIXTURES.iterdir())


class Recorded:
    """transformers as an engine, from its recording: logits, and the codes and scales of every quantiser."""

    name = "transformers"

    def __init__(self, peer: Peer, with_trace: bool) -> None:
        self._logits, self._whole = peer.logits, {}
        if with_trace:
            self._whole = {n: a for n, a in peer.arrays.items() if n.endswith((".codes", ".scale"))}
            self.trace = lambda tokens: {**self._whole, "logits": self._logits}

    def reset(self) -> None: ...

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return self._logits


def report_on(case: str, with_trace: bool, change: Any = lambda golden: golden) -> Report:
    peer = Peer.load(FIXTURES / case / "peer.safetensors")
    golden = change(golden_run(FIXTURES / case / "checkpoint", peer.tokens.tolist()))
    return judge(golden, Candidate(Recorded(peer, with_trace)), case, with_speed=False)


@pytest.mark.parametrize("with_trace", [True, False], ids=["trace", "logits alone"])
@pytest.mark.parametrize("case", CASES)
def test_transformers_conforms_and_its_ties_are_named(case: str, with_trace: bool) -> None:
    report = report_on(case, with_trace)
    assert report.verdict == "conforms", report.levels
    (verdict,) = report.logits
    far = [p.position for p in verdict.positions if p.relative > 2e-5]
    assert bool(far) == bool(verdict.ties), "a position is worse than noise exactly where a tie broke"
    if far:
        assert min(tie.position for tie in verdict.ties) == min(far)
    if with_trace:
        assert {(t.name, t.position, t.channel) for t in verdict.ties} <= {
            (t.name, t.position, t.channel) for t in report.ties
        }


def test_the_fixtures_hold_broken_ties_at_all() -> None:
    """A control: without one in the recordings the test above would show nothing."""
    assert sum(bool(report_on(case, with_trace=True).ties) for case in CASES) >= 3


def divided(golden: GoldenRun) -> GoldenRun:
    config = golden.checkpoint.config
    rule = "divide" if config.scale_rule == "multiply" else "multiply"
    return again(golden, replace(golden.checkpoint, config=replace(config, scale_rule=rule)))


def without_sub_norms(golden: GoldenRun) -> GoldenRun:
    w = golden.checkpoint.weights
    layers = tuple(replace(layer, attn_sub_norm=None, ffn_sub_norm=None) for layer in w.layers)
    config = replace(golden.checkpoint.config, sub_norms=False)
    return again(golden, replace(golden.checkpoint, config=config, weights=replace(w, layers=layers)))


def again(golden: GoldenRun, checkpoint: Any) -> GoldenRun:
    """The golden run of a changed checkpoint: a reference with a fault, which transformers must not conform to."""
    from tritgold.model import forward
    from tritgold.trace import Trace

    trace = Trace()
    forward(golden.tokens, checkpoint.weights, checkpoint.config, trace=trace)
    return GoldenRun(checkpoint, golden.tokens, trace)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_trace", [True, False])
def test_a_wrong_scale_direction_fails_the_same_judgement(case: str, with_trace: bool) -> None:
    assert report_on(case, with_trace, divided).verdict == "does not conform"


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("bitnet")])
def test_a_dropped_sub_norm_fails_the_same_judgement(case: str) -> None:
    assert report_on(case, True, without_sub_norms).verdict == "does not conform"
