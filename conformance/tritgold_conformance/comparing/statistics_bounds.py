"""The statistics level: mean, std, rms, extremes and zeros of an engine's activations, if it does not show them.

Weaker than a trace: codes are not visible, so broken ties cannot be followed. The effect of breaking ties at random on
the golden model's own statistics is measured, and an engine may differ by a multiple of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.activation_statistics import (
    MOMENTS,
    Moments,
    differences,
    moments,
    moments_distance,
)
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.tie_sensitivity import moved_otherwise
from tritgold_conformance.golden.run import GoldenRun

# With 4 runs, one of 250 right engines had an extreme after a tie that no run had broken.
RUNS, FACTOR, FLOOR = 6, 4.0, 2e-5
# An array that fails by less than CLOSE is judged again after MORE runs: of two ties that cancel in the moments, an
# engine may break one, and three pairs of runs break both together in one of eight cases (seen once in 1,000 engines).
MORE, CLOSE = 16, 10.0
# A share of zeros changes by whole elements: one broken code makes a few sums of its token 0, or no longer 0.
COUNTED = 4
WHY = f"{FACTOR:g} x what breaking ties at random does to the golden model's own, at least {FLOOR:g} of the rms"


def judge_statistics(golden: GoldenRun, given: Mapping[str, Mapping[str, float]]) -> Iterator[Comparison | str]:
    """A Comparison for each array for which the engine gave one of MOMENTS, in execution order; its name for others.

    A moment that is not finite fails.
    """
    known = {name: of for name in golden.trace.arrays if (of := given.get(name)) and any(m in of for m in MOMENTS)}
    found = _compared(golden, known, RUNS)
    failing = [c for c in found.values() if not c.passed]
    if failing and all((c.excess or 0.0) < CLOSE for c in failing):
        found = _compared(golden, known, RUNS + MORE)
    yield from (found.get(name, name) for name in golden.trace.arrays)


def _compared(golden: GoldenRun, known: Mapping[str, Mapping[str, float]], runs: int) -> dict[str, Comparison]:
    """A Comparison for each array in ``known``, by what so many runs with broken ties do."""
    few, found = counted(golden), dict[str, Comparison]()
    for (name, of), allowed in zip(known.items(), statistics_allowed(golden, known, runs).tolist(), strict=True):
        theirs = np.array([of.get(moment, np.nan) for moment in MOMENTS], np.float64)
        ours = moments(golden.trace[name])
        count = sum(moment in of for moment in MOMENTS)
        lost = [moment for moment in MOMENTS if moment in of and not np.isfinite(of[moment])]
        if lost:
            what = f"non-finite: {', '.join(lost)}"
            found[name] = Comparison(name, "fails", compared=count, excess=np.inf, what=what, why=WHY)
            continue
        far = differences(ours, theirs, few[name])
        worst, excess = int(np.nanargmax(far)), float(np.nanmax(far) / allowed)
        what = "" if excess <= 1 else f"{MOMENTS[worst]} is {theirs[worst]:.6g}, golden {ours[worst]:.6g}"
        found[name] = Comparison(
            name,
            "fails" if what else "within" if np.nanmax(far) else "equal",
            compared=count,
            differing=int(np.count_nonzero(np.nan_to_num(far))),
            excess=excess,
            what=what,
            why=f"{allowed:.1e}: {WHY}",
        )
    return found


def counted(golden: GoldenRun) -> dict[str, float]:
    """By how much the share of zeros of each array may be off, independent of the measured effect of ties.

    Broken ties change COUNTED elements. If an integer sum is 0, a float32 sum may be 1e-8: such zeros, of a linear
    and of the gate's product of two linears, with or without its norm, are not counted.
    """
    arrays = golden.trace.arrays
    zeros = {
        name: int(np.count_nonzero(array == 0)) for name, array in arrays.items() if TraceName.of(name).role == "out"
    }

    def lost(name: str) -> int:
        at = TraceName.of(name)
        if at.what in ("ffn_act", "ffn_sub_norm"):
            return zeros.get(at.sibling("gate.out"), 0) + zeros.get(at.sibling("up.out"), 0)
        return zeros.get(name, 0)

    return {name: (COUNTED + lost(name)) / max(array.size, 1) for name, array in arrays.items()}


def statistics_allowed(golden: GoldenRun, names: Iterable[str], runs: int = RUNS) -> np.ndarray:
    """How much the statistics of each array may differ between two models that differ only by broken ties.

    FACTOR x the effect of breaking them at random in the golden model, over so many runs; float64, one for each name.
    """
    base = {name: moments(golden.trace[name]) for name in names}
    moved = (_moments_with(golden, run) for run in range(runs))
    found = allowed_by_moves(base, ({n: m[n] for n in base if n in m} for m in moved))
    if golden.policy.logits and "logits" in base:
        logits = golden.logits.astype(np.float64)
        rounded = golden.policy.logits * np.abs(logits).max() / max(np.sqrt((logits**2).mean()), FLOOR)
        found[list(base).index("logits")] += rounded  # of how they are handed out
    return found


def allowed_by_moves(base: Moments, moved: Iterable[Moments]) -> np.ndarray:
    """The bound of ``statistics_allowed``. base: a model's own MOMENTS by name; moved: those with its ties broken."""
    return np.max([np.full(len(base), FLOOR), *(FACTOR * moments_distance(m, base) for m in moved)], axis=0)


@lru_cache(maxsize=RUNS + MORE)
def _moments_with(golden: GoldenRun, run: int) -> dict[str, np.ndarray]:
    """Moments of all arrays, ties broken; kept, since several engines may be judged by one golden run."""
    trace, c = Trace(), golden.checkpoint
    with np.errstate(all="ignore"), suppress(NonFiniteError):  # what came before is there
        forward(golden.tokens, c.weights, c.config, trace=trace, arithmetic=moved_otherwise(golden, run))
    return {name: moments(array) for name, array in trace.arrays.items()}
