"""Wrong engines that reach for the verdict: none of them ends with exit code 0."""

import ctypes
import ctypes.util
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.contract.session import Session
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.float_environment import require_default_floats
from tritgold_conformance.golden.run import GoldenRun

ROOT = Path(__file__).parents[3]
HELPERS = ROOT / "tests" / "conformance" / "helpers"
# <fenv.h> of each machine: toward zero, and to nearest
ROUNDING = {"x86_64": (0xC00, 0), "AMD64": (0xC00, 0), "aarch64": (0xC00000, 0), "arm64": (0xC00000, 0)}
NOT_CONFORMING, NOT_JUDGED, INTERRUPTED = 1, 3, 130


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_seeded_model(folder, Shape(seed=9, hidden=64, inter=96, layers=1, heads=4, kv_heads=2, context=32))
    return folder


def checked(engine: str, model: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tritgold_conformance", "check", "--engine", f"cheating_engines:{engine}"]
    path = os.pathsep.join([str(HELPERS), *(str(ROOT / part) for part in ("reference", "conformance"))])
    return subprocess.run(
        [*words, "--model", str(model), "--tokens", "4", "--timeout", "30", "--one-text", *more],
        env={**os.environ, "PYTHONPATH": path},
        cwd=model.parent,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        ("PatchesNumpy", NOT_CONFORMING),
        ("ReplacesTheVerdict", NOT_CONFORMING),
        ("OverwritesWeights", NOT_CONFORMING),
        ("ReplacesTheArithmetic", NOT_CONFORMING),
        ("RoundsTowardZero", NOT_CONFORMING),
        ("ReplacesTheInputs", NOT_CONFORMING),
        ("WritesTheAnswerEarly", NOT_CONFORMING),
        ("WritesIntoEveryPipe", NOT_JUDGED),
        ("AnswersNothingAndLeaves", NOT_JUDGED),
        ("ChangesTheModel", NOT_JUDGED),
        ("ChangesTheModelQuietly", NOT_JUDGED),
        ("KillsTheJudge", -9),
        ("InterruptsTheJudge", INTERRUPTED),
    ],
)
def test_a_cheat_is_no_pass(model: Path, engine: str, code: int) -> None:
    done = checked(engine, model, "--json")
    assert done.returncode == code, done.stderr
    if code == NOT_CONFORMING:
        report = json.loads(done.stdout)
        assert report["verdict"] == "does not conform"
        assert report["levels"]["logits"]["status"] == "failed"


def test_the_same_engine_without_a_cheat_conforms(model: Path) -> None:
    """A control: the codes that are cut off are what fails."""
    assert checked("Right", model).returncode == 0


def test_the_same_wrong_engine_without_a_cheat_does_not(model: Path) -> None:
    assert checked("Wrong", model).returncode == NOT_CONFORMING


def test_modules_of_the_current_folder_are_not_the_judges(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes sys.path and PYTHONSTARTUP for itself, and leaves a module where the judge was started."""
    assert checked("ChangesThePath", model, "--json").returncode == NOT_CONFORMING
    monkeypatch.chdir(model.parent)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    load_engine("cheating_engines:ChangesThePath", model, open_checkpoint(model), 9, 30)
    assert (model.parent / "rich.py").exists()
    assert sys.path[-1] == str(model.parent)
    assert "" not in sys.path


def test_a_changed_model_says_so(model: Path) -> None:
    said = json.loads(checked("ChangesTheModelQuietly", model, "--json").stdout)
    assert said["kind"] == "engine-changed-model"


# ---- the floating-point environment ----------------------------------------------------------------------------------


def set_rounding(mode: int) -> None:
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    assert libm.fesetround(mode) == 0


needs_fenv = pytest.mark.skipif(platform.machine() not in ROUNDING, reason="<fenv.h> of this machine is not known here")


@needs_fenv
@pytest.mark.parametrize("which", range(1, 4))
def test_a_changed_rounding_mode_is_noticed(model: Path, which: int) -> None:
    """Downward, upward, toward zero: thirds of the mode's bits."""
    mode = ROUNDING[platform.machine()][0] // 3 * which
    checkpoint = open_checkpoint(model)
    GoldenRun.of(checkpoint, [1, 2])
    try:
        set_rounding(mode)
        with pytest.raises(EngineError, match="rounding mode is not to nearest") as refused:
            GoldenRun.of(checkpoint, [1, 2])
    finally:
        set_rounding(0)
    assert refused.value.kind == "float-environment"
    require_default_floats()


@needs_fenv
def test_a_rounding_mode_that_changes_during_the_run_is_noticed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritgold_conformance.golden import run

    forward = run.forward

    def changing(*given: Any, **named: Any) -> Any:
        out = forward(*given, **named)
        set_rounding(ROUNDING[platform.machine()][0])
        return out

    monkeypatch.setattr(run, "forward", changing)
    try:
        with pytest.raises(EngineError, match="rounding mode"):
            GoldenRun.of(open_checkpoint(model), [1, 2])
    finally:
        set_rounding(0)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="MXCSR is of x86")
@pytest.mark.parametrize(("bit", "says"), [(15, "flush-to-zero"), (6, "denormals-are-zero")])
def test_flushing_to_zero_is_noticed(bit: int, says: str) -> None:
    """In a process of its own, for Python may not come back from it."""
    code = (
        "import ctypes, ctypes.util\n"
        "from tritgold.errors import EngineError\n"
        "from tritgold_conformance.golden.float_environment import require_default_floats\n"
        "libm = ctypes.CDLL(ctypes.util.find_library('m'))\n"
        "env = (ctypes.c_uint32 * 8)()\n"
        "assert libm.fegetenv(env) == 0\n"
        "require_default_floats()\n"
        f"env[7] |= 1 << {bit}\n"
        "assert libm.fesetenv(env) == 0\n"
        "try:\n    require_default_floats()\n"
        "except EngineError as error:\n    print(error)\n"
    )
    path = os.pathsep.join(str(ROOT / part) for part in ("reference", "conformance"))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert says in done.stdout


@needs_fenv
def test_an_engines_rounding_mode_does_not_reach_the_golden_run(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    digest = hashlib.sha256(GoldenRun.of(checkpoint, [1, 2, 3]).logits.tobytes()).hexdigest()
    engine = load_engine("cheating_engines:LeavesTheRounding", model, checkpoint, 9, 30)
    (rows,) = engine.read([Session("rounded", [1, 2, 3], [3])])
    assert rows is not None
    golden = GoldenRun.of(checkpoint, [1, 2, 3])
    assert hashlib.sha256(golden.logits.tobytes()).hexdigest() == digest
    assert not np.array_equal(rows, golden.logits)
