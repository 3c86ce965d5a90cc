"""The golden model is the same bits everywhere: NumPy versions, BLAS kernels, threads, SIMD features.

Every environment runs ``trace_digest.py`` in a process of its own and must print the digests of ``golden.json``.
Older NumPy versions are found where ``make test`` installs one (``build/numpy-*``, put in front of the path) and
where ``make stability`` makes an environment with NumPy 1.26 (``.venv-numpy1``).
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OTHER_NUMPY = sorted((ROOT / "build").glob("numpy-*"))
NUMPY_1 = ROOT / ".venv-numpy1" / "bin" / "python"
# Kernels by age. OpenBLAS takes the name at its word: one that the processor lacks the instructions for is killed.
KERNELS = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX")


class NoSuchKernelError(Exception):
    """This processor cannot run the kernel: the process was killed by SIGILL, or NumPy alone dies in it.

    OpenBLAS's Prescott kernel ends in a segmentation fault on an EPYC with AVX-512, in a product of ones.
    """


@functools.cache
def digests(python: str = sys.executable, **variables: str) -> dict[str, Any]:
    """What the script prints in an environment with these variables set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "OMP", "NPY", "PYTHON"))}

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = [python, str(HERE / script)]
        return subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True, check=False)

    done = run("trace_digest.py")
    if "OPENBLAS_CORETYPE" in variables and (
        done.returncode == -signal.SIGILL
        or (done.returncode == -signal.SIGSEGV and run("float_product.py").returncode == -signal.SIGSEGV)
    ):
        raise NoSuchKernelError
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def expected() -> dict[str, str]:
    recorded: dict[str, str] = json.loads((HERE / "golden.json").read_text())
    assert recorded
    return recorded


def simd_features() -> list[str]:
    config: Any = np.show_config(mode="dicts")
    return list(config["SIMD Extensions"].get("found", []))


def test_this_environment_gives_the_recorded_digests() -> None:
    """To record new ones, after a decision to change the arithmetic: see docs/golden-arithmetic.md."""
    assert digests()["digests"] == expected()


@pytest.mark.parametrize("kernel", KERNELS)
def test_blas_kernels(kernel: str) -> None:
    try:
        run = digests(OPENBLAS_CORETYPE=kernel)
    except NoSuchKernelError:
        pytest.skip(f"this processor cannot run the kernel of {kernel}, NumPy alone included")
    assert run["digests"] == expected()


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads(threads: str) -> None:
    assert digests(OPENBLAS_NUM_THREADS=threads, OMP_NUM_THREADS=threads)["digests"] == expected()


def test_numpy_without_simd() -> None:
    features = simd_features()
    if not features:
        pytest.skip("this NumPy dispatches to no optional SIMD features here")
    assert digests(NPY_DISABLE_CPU_FEATURES=" ".join(features))["digests"] == expected()


def test_the_kernels_really_were_different() -> None:
    """A control: a float32 product whose rounding depends on the kernel comes out in at least two ways."""
    runs = []
    for kernel in KERNELS:
        with contextlib.suppress(NoSuchKernelError):
            runs.append(digests(OPENBLAS_CORETYPE=kernel))
    if "openblas" not in str(runs[0]["blas"]):
        pytest.skip(f"NumPy is linked with {runs[0]['blas']}, whose kernel cannot be chosen")
    assert len({str(run["blas"]) for run in runs}) >= 2
    assert len({run["control"] for run in runs}) >= 2


@pytest.mark.skipif(not OTHER_NUMPY, reason="no other NumPy: make test installs one into build/")
def test_another_numpy_version() -> None:
    for folder in OTHER_NUMPY:
        run = digests(PYTHONPATH=str(folder))
        assert run["numpy"] != np.__version__
        assert run["digests"] == expected()


@pytest.mark.skipif(not NUMPY_1.exists(), reason="no NumPy 1.26: make stability makes an environment with it")
def test_numpy_1_26() -> None:
    run = digests(str(NUMPY_1))
    assert run["numpy"].startswith("1.26")
    assert run["digests"] == expected()
