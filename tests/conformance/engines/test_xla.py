"""What the command does around the XLA engine: programs that are kept, and choices that were tuned."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden import embedded_model
from tritgold_conformance.engines.xla import open_judged
from tritgold_conformance.engines.xla_kept import kept_weights

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
    "--one-text",
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


def test_next_tokens_and_statistics_are_those_of_its_own_logits_and_trace() -> None:
    with embedded_model("seeded") as path:
        engine = open_judged(open_checkpoint(path), 8)
    tokens = [256, 72, 105, 33]
    logits = engine.prefill(tokens).astype(np.float64)
    for length in (1, 2, 3, 4, 2):  # the last does not go on from the one before
        token, shown = engine.complete(tokens[:length])
        row = logits[length - 1]
        assert token == int(np.argmax(row))
        assert next(iter(shown)) == token
        assert sum(np.exp(list(shown.values()))) == pytest.approx(1, abs=1e-12)
        expected = row - np.log(np.exp(row).sum())
        np.testing.assert_allclose([shown[i] for i in range(len(row))], expected, atol=1e-5)
    assert engine.length == len(tokens), "the engine's own text is neither read nor changed"
    found, arrays = engine.statistics(tokens), engine.trace(tokens).arrays
    assert list(found) == list(arrays)
    mix = arrays["layers.1.attn_mix"].astype(np.float64)
    assert found["layers.1.attn_mix"]["std"] == pytest.approx(mix.std())
    assert found["layers.1.attn_mix"].keys() == {"mean", "std", "rms", "min", "max", "zeros"}


def test_where_packed_weights_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for said in ("0", "off", "OFF"):
        monkeypatch.setenv("TRITGOLD_CACHE", said)
        assert kept_weights() is None
    monkeypatch.setenv("TRITGOLD_CACHE", "1")
    kept = kept_weights()
    assert kept is not None
    assert (kept.folder, kept.most) == (tmp_path / "tritgold" / "weights", 16 << 30)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TRITGOLD_CACHE_GB", "2.5")
    assert kept_weights() == kept._replace(most=2_500_000_000)
    monkeypatch.setenv("TRITGOLD_CACHE_GB", "0")
    assert kept_weights() is None
    for wrong in ("-1", "many", "1e3", "nan"):
        monkeypatch.setenv("TRITGOLD_CACHE_GB", wrong)
        with pytest.raises(EngineError, match=r"TRITGOLD_CACHE_GB.*expected gigabytes.*\[cache-size\]"):
            kept_weights()
