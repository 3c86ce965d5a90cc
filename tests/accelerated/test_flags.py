import os
import subprocess
import sys

import jax
import pytest

from tritgold.errors import EngineError
from tritgold_xla import flags


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
    code = "from tritgold_xla import flags; print(flags.cpu_device().platform)"
    fast = "--xla_cpu_enable_fast_math=true --xla_cpu_enable_fast_min_max=true"
    done = run(code, XLA_FLAGS=fast)
    assert done.stdout == "cpu\n", done.stderr


def test_a_platform_that_somebody_chose_is_not_overruled():
    done = run("from tritgold_xla import flags; flags.cpu_device()", JAX_PLATFORMS="cuda")
    assert "found cuda, expected cpu" in done.stderr
    assert "[platform]" in done.stderr
