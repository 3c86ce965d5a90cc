"""Every XLA and JAX setting that results depend on, set and asserted in this one file.

Nothing happens at import. ``jit`` fixes the compiler's options for our programs alone, over whatever XLA_FLAGS says
and without touching anybody else's; ``cpu_device`` chooses the platform, or refuses the one that is there.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import jax
import numpy as np
from jax import lax

from tritgold.errors import EngineError
from tritgold.modes import ArithmeticMode
from tritgold_xla.ieee import divide, multiply

# Every float32 dot product asks for this: the default may be bfloat16 passes, by platform or by a user's setting.
PRECISION = lax.Precision.HIGHEST

MODE = ArithmeticMode(
    name="golden.float32",
    version=1,
    rounds=(
        "activations, linear: as in golden, the same bits from the same inputs",
        "norm, RoPE, softmax, FFN activation: single float32 operations; sums by halves; exp by XLA",
        "attention scores and mix, head: float32 dot products, summed in XLA's order",
        "residual: one float32 addition",
        "everywhere: results below 1.2e-38 are zero, XLA-CPU flushes subnormal numbers",
    ),
)

_COMPILER_OPTIONS: dict[str, Any] = {
    # Registers of 512 bits where there are any: by default the compiler stops at 256. Integers alone come out faster.
    "xla_cpu_prefer_vector_width": 512,
    # Off by default since 2020. It drops NaN and infinity and reassociates sums.
    "xla_cpu_enable_fast_math": False,
    # On by default until 2025: the larger of NaN and x could be x. (In wide reductions it still can: ieee.tree_max.)
    "xla_cpu_enable_fast_min_max": False,
    # On by default: a conversion to a narrower type and back may be skipped.
    "xla_allow_excess_precision": False,
}

_Result = TypeVar("_Result")


def jit(
    function: Callable[..., _Result], *, static: tuple[str, ...] = (), donate: tuple[str, ...] = ()
) -> Callable[..., _Result]:
    """``function`` compiled under the options above; its arrays may come from NumPy.

    static: arguments, given by keyword, whose every value makes a program of its own. donate: arguments whose memory
    the result takes over.
    """
    return jax.jit(function, static_argnames=static, donate_argnames=donate, compiler_options=_COMPILER_OPTIONS)


def cpu_device() -> jax.Device:
    """The CPU, after asserting everything that this file promises.

    Chooses the CPU platform where nobody has chosen one yet. Raises EngineError: ``platform`` where JAX already runs
    on another one, ``x64`` where 64-bit types are on, ``arithmetic`` where compiled float32 is not IEEE 754.
    """
    _choose_cpu()
    if jax.config.jax_enable_x64:
        raise EngineError(
            "JAX's 64-bit types are on; this engine is float32 and int32",
            kind="x64",
            got="jax_enable_x64=True",
            expected="False",
            hint="unset JAX_ENABLE_X64, or run the engine in a process of its own",
        )
    _assert_arithmetic()
    return jax.devices("cpu")[0]


def _choose_cpu() -> None:
    set_option: Callable[[str, str], None] = jax.config.update  # untyped in some versions of JAX
    chosen = jax.config.jax_platforms or ""
    if not chosen:
        set_option("jax_platforms", "cpu")  # no effect where JAX has started: then default_backend tells
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
    """Compile one small program that a wrong setting would change, and compare its bits with NumPy's."""
    # The multiplier comes broadcast and the sum follows at once: what tempts the compiler in the engine itself.
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
