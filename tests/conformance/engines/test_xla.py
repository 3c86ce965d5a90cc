"""What the command does around the XLA engine: programs that are kept, and choices that were tuned."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

CHECK = [
    sys.executable,
    "-m",
    "tritgold_conformance",
    "check",
    "--model",
    "seeded",
    "--engine",
    "xla",
    "--tokens",
    "8",
    "--no-speed",
]


ONE_OPERATION = ("--only", "layers.0.ffn_act")
KEPT_WHATEVER_IT_TOOK = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def check(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    env = {**inherited, **KEPT_WHATEVER_IT_TOOK, **environment}
    done = subprocess.run([*CHECK, *options], env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done


def programs(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*-cache")}


def test_the_second_check_starts_warm(tmp_path: Path) -> None:
    here = {"XDG_CACHE_HOME": str(tmp_path), "TRITGOLD_CACHE": "1", "NPROC": "1"}
    assert check(**here).returncode == 0
    kept = programs(tmp_path)
    assert any("forward" in name for name in kept)
    assert {Path(name).parent for name in kept} == {Path("tritgold/xla/threads-1")}
    times = {name: (tmp_path / name).stat().st_mtime_ns for name in kept}
    assert check(**here).returncode == 0
    assert programs(tmp_path) == kept, "the second has compiled nothing new"
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == times


def test_nothing_is_kept_where_the_user_says_so(tmp_path: Path) -> None:
    for told, kept in (("0", False), ("1", True)):
        done = check(*ONE_OPERATION, XDG_CACHE_HOME=str(tmp_path), TRITGOLD_CACHE=told)
        assert done.returncode == 0, done.stderr
        assert bool(programs(tmp_path)) == kept


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = check(*ONE_OPERATION, XDG_CACHE_HOME=str(tmp_path / "file"), TRITGOLD_CACHE="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiled programs are not kept") == 1
    assert "[unwritable]" in done.stderr


def test_choices_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "tritgold" / "xla-tuning.json"
    file.parent.mkdir()
    file.write_text("{")
    done = check(XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 3
    assert "[tuning-file]" in done.stderr
    assert str(file) in done.stderr
    assert "delete it" in done.stderr
