"""What the processes of a benchmark are told."""

import os

import pytest

from tritgold_conformance.bench.processes import environment


def test_programs_that_the_user_keeps_are_not_read_where_compiling_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/the/user's")
    assert "JAX_COMPILATION_CACHE_DIR" not in environment(1)
    assert environment(1)["TRITGOLD_CACHE"] == "0"
    judging = environment(1, timed=False)
    assert "JAX_COMPILATION_CACHE_DIR" not in judging
    assert judging.get("TRITGOLD_CACHE") == os.environ.get("TRITGOLD_CACHE")
    ours = environment(2, "ours")
    assert (ours["XDG_CACHE_HOME"], ours["TRITGOLD_CACHE"]) == ("ours", "1")
    assert "JAX_COMPILATION_CACHE_DIR" not in ours


def test_every_library_uses_as_many_threads_as_are_asked_for() -> None:
    found = environment(3)
    names = ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    assert [found[name] for name in names] == ["3"] * 4
