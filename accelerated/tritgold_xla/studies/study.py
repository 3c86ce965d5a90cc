"""A pair of forms and its measurement: both are compiled the same way, must give equal results, and run in turn."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from tritgold_xla.runtime.flags import jit

ROUNDS = 9  # the minimum; short forms run more rounds, for SECONDS in total
SECONDS = 1.0
COMPILED = 5  # compilations of each form


@dataclass(frozen=True)
class Form:
    """Two functions of the same arrays, jit-compiled; their results are equal, or within ``tolerance`` of the largest.

    name: of the finding, unique. slow, fast: the two forms in words. arrays: the arguments of both.
    weights: number multiplied or unpacked in one call, to compute a speed; 0 if that is meaningless. compiles: compare
    the processor time of compiling instead of the run time. slow_options: compiler options of the slow form only.
    """

    name: str
    slow: str
    fast: str
    slow_form: Callable[..., jax.Array]
    fast_form: Callable[..., jax.Array]
    arrays: tuple[Any, ...]
    weights: int = 0
    compiles: bool = False
    tolerance: float = 0.0
    slow_options: dict[str, Any] = field(default_factory=dict)


def programs(form: Form) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    """The slow and the fast form, jit-compiled with the engine's compiler options (or ``slow_options``)."""
    slow = jax.jit(form.slow_form, compiler_options=form.slow_options) if form.slow_options else jit(form.slow_form)
    return slow, jit(form.fast_form)


def difference(form: Form) -> float:
    """Largest difference of the two results / largest result; 0 if equal, infinity if one has NaN or infinity."""
    slow, fast = (np.asarray(program(*form.arrays)).astype(np.float64) for program in programs(form))
    if slow.shape != fast.shape or not (np.isfinite(slow).all() and np.isfinite(fast).all()):
        return float("inf")
    return float(np.abs(slow - fast).max() / max(np.abs(slow).max(), 1e-30))


def measured(form: Form, rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, Any]:
    """A row of the report: median times in milliseconds, and ratio, the median over rounds of slow time / fast time.

    If the machine slows down for a while, both times of a round are affected. Raises ValueError if the results differ,
    because the speed of a wrong result is meaningless.
    """
    off = difference(form)
    if off > form.tolerance:
        raise ValueError(f"{form.name}: the forms differ by {off:.2g}, allowed {form.tolerance:g}")
    arrays = [jax.device_put(array) for array in form.arrays]
    both = programs(form)
    pairs: list[tuple[float, ...]] = []
    if form.compiles:
        pairs = [tuple(_compiling(program, arrays) for program in both) for _ in range(COMPILED)]
    begin = time.perf_counter()
    while not form.compiles and (len(pairs) <= rounds or time.perf_counter() - begin < seconds):
        pairs.append(tuple(_running(program, arrays) for program in both))
    pairs = pairs[1:]  # the first round is always slower
    slow, fast = (statistics.median(side) for side in zip(*pairs, strict=True))
    row: dict[str, Any] = {"name": form.name, "slow": form.slow, "fast": form.fast}
    row |= {"what": "compile" if form.compiles else "run", "slow_ms": _short(1e3 * slow), "fast_ms": _short(1e3 * fast)}
    row["ratio"] = _short(statistics.median(s / f for s, f in pairs))
    if form.weights and not form.compiles:
        row["slow_gmacs"], row["fast_gmacs"] = (_short(form.weights / t / 1e9) for t in (slow, fast))
    return row


def _running(program: Callable[..., jax.Array], arrays: list[jax.Array]) -> float:
    begin = time.perf_counter()
    program(*arrays).block_until_ready()
    return time.perf_counter() - begin


def _compiling(program: Any, arrays: list[jax.Array]) -> float:
    """Processor time of compiling: elapsed time would include other processes. Caches are cleared first."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    lowered = program.lower(*arrays)
    begin = time.process_time()
    lowered.compile()
    return time.process_time() - begin


def _short(value: float) -> float:
    """Rounded to three significant digits, the precision of these measurements."""
    return float(f"{value:.3g}")
