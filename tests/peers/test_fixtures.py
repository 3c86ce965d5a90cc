"""The golden model against what transformers made of the same checkpoints.

``fixtures/`` holds what ``make_fixtures.py`` wrote; ``test_live.py`` makes it again; ``test_faults.py`` spoils it.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from asked_once import judge as report_on
from judging import Judged, assert_agrees, judge
from peer_trace import Peer

from tritgold.checkpoint import open_checkpoint
from tritgold_conformance.comparing.free_running import NOISE
from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.contract.engine_under_test import EngineUnderTest

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(folder.name for folder in FIXTURES.iterdir())


@pytest.fixture(scope="module", params=CASES)
def judged(request: pytest.FixtureRequest) -> Judged:
    return judge(FIXTURES / request.param)


def far(judged: Judged) -> list[int]:
    """Positions where the peer's logits are not the golden ones."""
    return [p.position for p in judged.by_search.positions if p.relative > LOGIT_NOISE]


def test_the_cases_are_those_that_the_issue_names() -> None:
    made_with = {
        (tuple(p["classes"]), p["settings"]["mode"], p["settings"]["tied"], p["settings"]["kv_heads"])
        for p in (json.loads((FIXTURES / case / "provenance.json").read_text()) for case in CASES)
    }
    auto, plain = ("AutoBitLinear", "BitNetForCausalLM"), ("BitLinear", "LlamaForCausalLM")
    for mode in ("offline", "online"):
        assert {(auto, mode, True, 1), (auto, mode, False, 2)} <= made_with
    assert {(plain, "offline", True, 2), (plain, "offline", False, 1)} <= made_with


def test_agrees_at_every_position(judged: Judged) -> None:
    assert_agrees(judged)


def test_the_logits_alone_tell_the_same_ties(judged: Judged) -> None:
    assert set(judged.by_search.ties) == set(judged.ties)
    assert {tie.position for tie in judged.ties} <= set(far(judged))
    assert min(far(judged), default=None) == min((tie.position for tie in judged.ties), default=None)


def test_few_positions_need_a_tie_as_explanation(judged: Judged) -> None:
    assert len(far(judged)) <= 0.1 * len(judged.peer.tokens)


def test_the_noise_is_much_smaller_than_its_bounds(judged: Judged) -> None:
    # Float noise is 1e-6 and a single code off by one moves logits by 1e-4 or more: the bounds lie in the gap.
    assert max(p.explained for p in judged.by_search.positions) < LOGIT_NOISE / 10
    assert max(judged.whole.worst, judged.floats.worst) < NOISE / 5


def test_a_tie_is_among_the_fixtures_of_both_families() -> None:
    tied = [case for case in CASES if far(judge(FIXTURES / case))]
    assert {case.split("-")[0] for case in tied} == {"bitnet", "llama"}
    assert len(tied) >= 3


class Recorded:
    """transformers as an engine, from its recording."""

    name = "transformers"

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def reset(self) -> None: ...

    def prefill(self, tokens: list[int]) -> np.ndarray | None:
        return self.peer.logits if tokens == self.peer.tokens.tolist() else None  # a recording knows one prompt


class Traced(Recorded):
    """The same with a trace: codes, scales and logits."""

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        return self.peer.whole


@pytest.mark.parametrize("engine", [Recorded, Traced])
def test_the_command_s_verdict_is_the_same(judged: Judged, engine: type[Recorded]) -> None:
    report = report_on(judged.golden, EngineUnderTest(engine(judged.peer)), "a model", with_speed=False)
    assert report.verdict == "conforms", report.levels
    assert report.levels["trace"].status == ("passed" if engine is Traced else "not assessed")
    (verdict,) = report.logits
    assert verdict.positions == judged.by_search.positions
    assert set(verdict.ties) == set(judged.by_search.ties)  # those of a trace come in execution order
    assert report.ties == (judged.ties if engine is Traced else [])


def test_the_judged_input_is_long_varied_and_of_odd_vocabulary(judged: Judged) -> None:
    assert judged.peer.tokens.shape == (40,)
    assert len(set(judged.peer.tokens.tolist())) > 20
    checkpoint = judged.golden.checkpoint
    assert checkpoint.config.vocab % 2 == 1
    scales = [weight.ternary().scale.item() for _, weight in checkpoint.weights.linears()]
    assert len(set(scales)) == len(scales)  # an equal scale would hide a swapped one
    assert 1.0 not in scales


def test_provenance_matches_the_files(judged: Judged) -> None:
    folder = judged.golden.checkpoint.path.parent
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"provenance.json"}
    recorded = judged.provenance["files_sha256"]
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files} == recorded
    assert judged.provenance["versions"].keys() >= {"python", "torch", "transformers", "accelerate"}
    assert judged.provenance["platform"]["threads"] == 1


def test_the_special_cases_are_special() -> None:
    assert len(list(FIXTURES.glob("*sharded/checkpoint/model-*-of-*.safetensors"))) > 1
    config = open_checkpoint(FIXTURES / "llama-bitlinear-head-dim" / "checkpoint").config
    assert config.q_width != config.hidden
    absent = json.loads((FIXTURES / "llama-bitlinear-class-absent" / "checkpoint" / "config.json").read_text())
    assert "linear_class" not in absent["quantization_config"]
