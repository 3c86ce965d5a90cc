"""Every XLA and JAX setting that results or speed depend on is set and checked in this file.

Nothing happens at import. ``jit`` sets the compiler's options for our programs only; they override XLA_FLAGS and do not
affect other programs. ``cpu_device`` chooses the platform, or refuses another one that is already chosen.
``start_with`` changes settings of the whole process; programs call it, not the engine.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax import lax

from tritgold.errors import EngineError
from tritgold.modes import ArithmeticMode
from tritgold_xla.runtime.ieee import divide, multiply

# For every float32 dot product: the default may use bfloat16, depending on the platform or a user's setting.
PRECISION = lax.Precision.HIGHEST

MODE = ArithmeticMode(
    name="golden.float32",
    version=1,
    rounds=(
        "activations, linear: as in golden, the same bits from the same inputs",
        "norm, RoPE, softmax, FFN activation: single float32 operations; sums by halves; exp by XLA",
        "attention scores and mix, head: float32 dot products, or exact products of bfloat16 pieces; XLA's order",
        "residual: one float32 addition",
        "everywhere: results below 1.2e-38 are zero, XLA-CPU flushes subnormal numbers",
    ),
)

_COMPILER_OPTIONS: dict[str, Any] = {
    # Use 512-bit registers if the processor has them: the compiler's default is 256. It speeds up integers only.
    "xla_cpu_prefer_vector_width": 512,
    # Off by default since 2020. It drops NaN and infinity and reassociates sums.
    "xla_cpu_enable_fast_math": False,
    # On by default until 2025: max(NaN, x) could be x. (In wide reductions it still can: see ieee.tree_max.)
    "xla_cpu_enable_fast_min_max": False,
    # On by default: a conversion to a narrower type and back may be skipped.
    "xla_allow_excess_precision": False,
}

# XLA flag: into how many devices the CPU is divided.
FORCED = "--xla_force_host_platform_device_count="

_Result = TypeVar("_Result")


def jit(
    function: Callable[..., _Result], *, static: tuple[str, ...] = (), donate: tuple[str, ...] = (), level: int = 3
) -> Callable[..., _Result]:
    """``function`` compiled with the options above; its arguments may be NumPy arrays.

    static: keyword arguments; each of their values is compiled separately. donate: arguments whose memory the result
    reuses. level: of LLVM's optimisations; 3 is XLA's default. At 3 short loops are fully unrolled, and compiling many
    of them takes seconds.
    """
    options = {**_COMPILER_OPTIONS, "xla_backend_optimization_level": level}
    return jax.jit(function, static_argnames=static, donate_argnames=donate, compiler_options=options)


def cpu_device() -> jax.Device:
    """The CPU device, after checking all settings of this file.

    Chooses the CPU platform if none is chosen yet. Raises EngineError: ``platform`` if JAX already runs
    on another one, ``x64`` if 64-bit types are on, ``arithmetic`` if compiled float32 is not IEEE 754,
    ``flags-late`` if XLA_FLAGS or NPROC have changed since the first call, which JAX would ignore.
    """
    _choose_cpu()
    for name, first in _environment_at_start().items():
        _require_started_with(name, first, os.environ.get(name))
    if jax.config.jax_enable_x64:
        raise EngineError(
            "JAX's 64-bit types are on; this engine is float32 and int32",
            kind="x64",
            got="jax_enable_x64=True",
            expected="False",
            hint="unset JAX_ENABLE_X64, or run the engine in a separate process",
        )
    _assert_arithmetic()
    return jax.local_devices(backend="cpu")[0]


def cpu_devices(count: int) -> list[jax.Device]:
    """The first ``count`` devices of the CPU, those of other processes included, after all of ``cpu_device``.

    Raises EngineError ``devices`` if there are fewer.
    """
    if type(count) is not int or count < 1:
        raise EngineError("cannot be", kind="devices", thing="devices", got=count, expected="1 or more")
    first, there = cpu_device(), jax.devices("cpu")
    if count > len(there):
        raise EngineError(
            "JAX has started with fewer devices",
            kind="devices",
            got=len(there),
            expected=count,
            hint=f"start the process with XLA_FLAGS={FORCED}{count}; the commands' --devices does so",
        )
    return [first] if count == 1 else there[:count]


def _choose_cpu() -> None:
    set_option: Callable[[str, str], None] = jax.config.update  # untyped in some versions of JAX
    chosen = jax.config.jax_platforms or ""
    if not chosen:
        set_option("jax_platforms", "cpu")  # no effect if JAX has started; default_backend shows it
    platform = jax.default_backend() if chosen.partition(",")[0] in ("", "cpu") else chosen
    if platform != "cpu":
        set_option("jax_platforms", chosen)
        raise EngineError(
            "JAX runs on another platform than the CPU",
            kind="platform",
            got=platform,
            expected="cpu",
            hint="set JAX_PLATFORMS=cpu, or make the engine before anything else uses JAX in this process",
        )


@cache
def _assert_arithmetic() -> None:
    """Compile a small program whose result a wrong setting would change, and compare its bits with NumPy's."""
    # A broadcast multiplier, directly followed by a sum: as in the engine, where the compiler would rewrite it.
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(0.1, 9, shape).astype(np.float32) for shape in ((8, 77), (8, 1), (8, 77)))
    got = jit(lambda a, b, c: c + multiply(divide(divide(a, b), b[:1]), b))(a, b, c)
    wrong = np.flatnonzero(np.asarray(got) != c + a / b / b[:1] * b)
    finite = np.asarray(jit(jax.numpy.isfinite)(np.array([1, np.nan, np.inf], np.float32))).tolist()
    if wrong.size or finite != [True, False, False]:
        raise EngineError(
            "compiled float32 arithmetic is not IEEE 754; int8 codes would not be reproducible",
            kind="arithmetic",
            got=f"{wrong.size} of {a.size} results differ, isfinite {finite}",
            expected="none, [True, False, False]",
            hint="report it with the versions of jax and jaxlib",
        )


def threads() -> int:
    """The number of threads that XLA-CPU uses if it starts now: NPROC, else the processors this process may use."""
    said = os.environ.get("NPROC", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_with(count: int | None = None, xla_flags: str | None = None) -> None:
    """Set the number of threads and the XLA_FLAGS with which JAX starts; JAX reads them only when it starts.

    Sets NPROC and XLA_FLAGS if JAX has not started yet. Raises EngineError ``flags-late`` if it has started with other
    values. None: do not change this one.
    """
    wanted = {"NPROC": None if count is None else str(count), "XLA_FLAGS": xla_flags}
    started = _threads_started()
    if started is None:  # unknown on this system: use what was recorded at our own start
        started = 0 if _environment_at_start.cache_info().currsize == 0 else threads()
    if not started:
        os.environ.update({name: value for name, value in wanted.items() if value is not None})
        return
    known = _environment_at_start() if _environment_at_start.cache_info().currsize else dict(os.environ)
    if count is not None:
        _require_started_with("threads", str(started), str(count))
    if xla_flags is not None:
        _require_started_with("XLA_FLAGS", known.get("XLA_FLAGS") or "", xla_flags)


def start_with_devices(count: int) -> None:
    """Start JAX with so many devices of the CPU, or more if XLA_FLAGS already says so.

    Raises EngineError ``devices`` if it has started with fewer.
    """
    ask_for_devices(count)
    cpu_devices(count)


def ask_for_devices(count: int) -> None:
    """The same without starting JAX; does nothing if it has started."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag]
    said = [int(flag.removeprefix(FORCED)) for flag in flags if flag.startswith(FORCED)]
    if max(said, default=1) < count:
        wanted = " ".join([*(flag for flag in flags if not flag.startswith(FORCED)), f"{FORCED}{count}"])
        with suppress(EngineError):  # JAX has started; ``cpu_devices`` checks whether it has enough devices
            start_with(xla_flags=wanted)


@cache
def _environment_at_start() -> dict[str, str | None]:
    """The values that JAX read when it started; first called directly after that."""
    return {name: os.environ.get(name) for name in ("XLA_FLAGS", "NPROC")}


def _threads_started() -> int | None:
    """The number of threads that XLA-CPU has started in this process, 0 before it starts; None if unknown."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return None
    names = []
    for task in tasks.iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:  # the thread has ended
            continue
    return sum(name.startswith("tf_XLAEigen") for name in names)


def _require_started_with(name: str, got: str | None, wanted: str | None) -> None:
    if got != wanted:
        raise EngineError(
            "JAX has started with another setting, and reads it only then",
            kind="flags-late",
            thing=name,
            got=repr(got),
            expected=repr(wanted),
            hint="set it before anything uses JAX in this process, or use a separate process",
        )
