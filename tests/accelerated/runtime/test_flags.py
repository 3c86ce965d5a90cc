import os
import re
import subprocess
import sys

import jax
import pytest

from tritgold.errors import EngineError
from tritgold_xla.runtime import flags


@pytest.fixture
def unchecked():
    """The arithmetic is asserted once a process; here it is to be asserted again, and once more afterwards."""
    flags._assert_arithmetic.cache_clear()
    yield
    flags._assert_arithmetic.cache_clear()


def test_the_device_is_the_cpu():
    assert flags.cpu_device().platform == "cpu"


def test_another_platform_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(EngineError, match=r"found gpu, expected cpu\. set JAX_PLATFORMS=cpu.*\[platform\]"):
        flags.cpu_device()


def test_64_bit_types_are_refused():
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(EngineError, match=r"jax_enable_x64=True.*\[x64\]"):
            flags.cpu_device()
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(("name", "plain"), [("multiply", lambda a, b: a * b), ("divide", lambda a, b: a / b)])
def test_arithmetic_that_is_merged_or_rewritten_is_refused(monkeypatch, unchecked, name, plain):
    monkeypatch.setattr(flags, name, plain)
    with pytest.raises(EngineError, match=r"not IEEE 754.*\[arithmetic\]"):
        flags.cpu_device()


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_our_options_stand_over_the_users_flags():
    code = "from tritgold_xla.runtime import flags; print(flags.cpu_device().platform)"
    fast = "--xla_cpu_enable_fast_math=true --xla_cpu_enable_fast_min_max=true"
    done = run(code, XLA_FLAGS=fast)
    assert done.stdout == "cpu\n", done.stderr


def test_a_platform_that_somebody_chose_is_not_overruled():
    done = run("from tritgold_xla.runtime import flags; flags.cpu_device()", JAX_PLATFORMS="cuda")
    assert "found cuda, expected cpu" in done.stderr
    assert "[platform]" in done.stderr


LATE = """
import os
import re
from tritgold_xla.runtime import flags
flags.start_with(1, "--xla_cpu_multi_thread_eigen=true")
flags.cpu_device()
print(os.environ["NPROC"], os.environ["XLA_FLAGS"])
flags.start_with(1, "--xla_cpu_multi_thread_eigen=true")
flags.start_with(1)
flags.start_with()
"""


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("flags.start_with(2)", "threads: JAX has started with another setting.*found '1', expected '2'"),
        ("flags.start_with(xla_flags='--xla_dump_to=x')", "XLA_FLAGS: .*found '--xla_cpu.*expected '--xla_dump_to=x'"),
        ("os.environ['XLA_FLAGS'] = ''; flags.cpu_device()", "XLA_FLAGS: .*found '--xla_cpu.*expected ''"),
        ("os.environ['NPROC'] = '2'; flags.cpu_device()", "NPROC: .*found '1', expected '2'"),
    ],
)
def test_settings_in_time_and_too_late(then, said):
    in_time = {"NPROC": "3", "XLA_FLAGS": ""}
    done = run(LATE, **in_time)
    assert (done.returncode, done.stdout) == (0, "1 --xla_cpu_multi_thread_eigen=true\n"), done.stderr
    done = run(LATE + then, **in_time)
    assert re.search(rf"EngineError: {said}.*\[flags-late\]", done.stderr), done.stderr


def test_settings_are_too_late_where_somebody_else_has_started_jax():
    code = "import jax; jax.devices(); from tritgold_xla.runtime import flags; flags.start_with(2)"
    done = run(code, NPROC="1")
    if sys.platform == "linux":
        assert re.search(r"found '1', expected '2'.*\[flags-late\]", done.stderr), done.stderr
    assert run(code, NPROC="2").returncode == 0


def test_without_a_system_that_tells_our_own_start_is_known(monkeypatch):
    flags.cpu_device()
    monkeypatch.setattr(flags, "_threads_started", lambda: None)
    flags.start_with(flags.threads())
    with pytest.raises(EngineError, match="flags-late"):
        flags.start_with(flags.threads() + 1)


def test_threads_are_those_of_nproc_or_of_the_processors(monkeypatch):
    monkeypatch.setenv("NPROC", "5")
    assert flags.threads() == 5
    for nothing in ("0", "x", ""):
        monkeypatch.setenv("NPROC", nothing)
        assert flags.threads() == len(os.sched_getaffinity(0))
