"""The peers run here and now: judged on seeds that nobody has seen, and held against what is checked in.

Set TRITGOLD_PEERS_PYTHON to an interpreter that has torch, transformers and accelerate; ``make peers`` makes one.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from judging import assert_agrees, judge
from measure.golden_outputs import FILE
from peer_trace import Peer
from safetensors.numpy import load_file

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import Options, convert
from tritgold.formats.safetensors_folder import SafetensorsFolder
from tritgold.golden import TRAINED, trained_model
from tritgold_conformance.comparing.logits import judge_logits
from tritgold_conformance.golden.run import GoldenRun

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
CASES = sorted(folder.name for folder in FIXTURES.iterdir())
PYTHON = os.environ.get("TRITGOLD_PEERS_PYTHON")
FRESH = 777  # offset of the seeds of the live judgement; the survey's go to 50

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="the peers run only where TRITGOLD_PEERS_PYTHON names their python; make peers"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases twice: with the recorded seeds, and with fresh ones and every row."""
    folder = tmp_path_factory.mktemp("peers")
    for options in ([], ["--offsets", str(FRESH), str(FRESH), "--all-rows"]):
        command = [str(PYTHON), str(HERE / "make_fixtures.py"), str(folder), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder


def test_every_case_is_made(made: Path) -> None:
    assert sorted(folder.name for folder in made.iterdir()) == sorted([*CASES, *(f"{c}+{FRESH}" for c in CASES)])


@pytest.mark.parametrize("case", CASES)
def test_agrees_on_a_fresh_seed(made: Path, case: str) -> None:
    judged = judge(made / f"{case}+{FRESH}")
    assert judged.provenance["seed"] != json.loads((FIXTURES / case / "provenance.json").read_text())["seed"]
    assert len(judged.peer.rows) == len(judged.peer.tokens)
    assert_agrees(judged)


@pytest.mark.parametrize("case", CASES)
def test_makes_the_checked_in_checkpoint_again(made: Path, case: str) -> None:
    """The random numbers are exact integers until they are rounded to bf16: equal bytes on every machine."""
    ours, theirs = (SafetensorsFolder(at / case / "checkpoint").tensors for at in (FIXTURES, made))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert (tensor.dtype, tensor.shape) == (theirs[name].dtype, theirs[name].shape)
        assert bytes(tensor.data) == bytes(theirs[name].data)


@pytest.mark.parametrize("case", CASES)
def test_makes_the_checked_in_logits_again(made: Path, case: str) -> None:
    """Equal up to summation order; where another machine falls on the other side of a tie, the golden model judges."""
    recorded, fresh = (Peer.load(at / case / "peer.safetensors") for at in (FIXTURES, made))
    assert recorded.tokens.tolist() == fresh.tokens.tolist()
    assert recorded.arrays.keys() == fresh.arrays.keys()
    codes = [name for name in recorded.arrays if name.endswith(".codes")]
    rows = [(recorded.arrays[name] != fresh.arrays[name]).any(axis=1) for name in codes]
    same = ~np.logical_or.accumulate(np.any(rows, axis=0))  # positions before which no code differs
    difference = np.abs(recorded.logits - fresh.logits).max(axis=1) / np.abs(recorded.logits).max()
    assert (difference[same] <= 1e-6).all()
    assert_agrees(judge(made / case))


@pytest.mark.parametrize("way", [(), ("i2_s", "tq1_0", "hf"), ("sglbitnt", "hf")], ids=["as it is", "gguf", "sglbitnt"])
@pytest.mark.parametrize("name", TRAINED)
def test_transformers_opens_a_model_and_writes_on_alike(name: str, way: tuple[str, ...], tmp_path: Path) -> None:
    """The embedded models, and what ``tritgold convert`` makes of them by way of other formats.

    Causally: transformers knows nothing of kjv-dlm's blocks. The ids are those of its own tokenizer.
    """
    folder, out = trained_model(name), tmp_path / "out.safetensors"
    (known, *_) = [c for c in json.loads((folder / FILE).read_text())["continuations"] if c["block"] == 1]
    for to in way:
        convert(open_checkpoint(folder), tmp_path / to, to, Options())
        folder = tmp_path / to
    command = [str(PYTHON), str(HERE / "peer_logits.py"), str(folder), known["prompt"], "32", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peer = load_file(out)
    assert peer["tokens"].tolist() == known["ids"]
    verdict = judge_logits("prefill", GoldenRun.of(open_checkpoint(folder), known["ids"]), peer["logits"])
    assert verdict.passed, verdict.problem
    assert peer["generated"].tolist() == known["generated"]
