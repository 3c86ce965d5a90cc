"""The golden model against what transformers made of the same checkpoints.

``fixtures/`` holds what ``make_fixtures.py`` wrote; ``test_live.py`` makes it anew; ``test_faults.py`` spoils it.
"""

import hashlib
import json
from pathlib import Path

import pytest
from agreement import LOGITS
from judging import Judged, assert_agrees, judge

from tritgold.checkpoint import open_checkpoint

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(folder.name for folder in FIXTURES.iterdir())


@pytest.fixture(scope="module", params=CASES)
def judged(request: pytest.FixtureRequest) -> Judged:
    return judge(FIXTURES / request.param)


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


def test_few_positions_need_a_tie_as_explanation(judged: Judged) -> None:
    assert len(judged.verdict.far) <= 0.1 * len(judged.peer.tokens)


def test_positions_without_a_tie_agree_much_better_than_the_bound(judged: Judged) -> None:
    # Float noise is 1e-6 and a single code off by one moves logits by 1e-4 or more: the bound lies in the gap.
    assert judged.verdict.worst["logits"] < LOGITS / 10
    assert judged.followed.worst["logits"] < LOGITS / 10


def test_a_tie_is_among_the_fixtures_of_both_families() -> None:
    tied = {case.split("-")[0] for case in CASES if judge(FIXTURES / case).verdict.far}
    assert tied == {"bitnet", "llama"}


def test_the_judged_input_is_long_varied_and_of_odd_vocabulary(judged: Judged) -> None:
    assert judged.peer.tokens.shape == (40,)
    assert len(set(judged.peer.tokens.tolist())) > 20
    assert judged.checkpoint.config.vocab % 2 == 1
    scales = [weight.ternary().scale.item() for _, weight in judged.checkpoint.weights.linears()]
    assert len(set(scales)) == len(scales)  # an equal scale would hide a swapped one
    assert 1.0 not in scales


def test_provenance_matches_the_files(judged: Judged) -> None:
    folder = judged.checkpoint.path.parent
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
