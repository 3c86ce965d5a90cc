"""Broken ties: where float32 noise carries x * s across a rounding tie, and how to go on after it.

A code that is off by one at a tie is nobody's bug, yet what follows differs by far more than rounding, at that
position and, through the KV cache, at every later one. So ties are *followed*: the golden model runs again with
the engine's code at the tie, and everything after it is held to the same strict bounds as everything before.
Nothing is excused for standing after a tie.

With a trace the engine's codes are at hand. From logits alone the ties are searched for (``tie_search``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tritgold.graph import Operation, operations
from tritgold.layers.arithmetic import Arithmetic
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.compare import incomparable
from tritgold_conformance.golden.run import GoldenRun

# Distance from a tie, in code units, within which an engine's own float32 noise may decide. Measured over 400 models
# against transformers (tests/peers/survey.py): noise of x * s up to 3e-4, broken ties up to 4.8e-5 from the tie.
TIE = 1e-3


@dataclass(frozen=True)
class BrokenTie:
    """A code that is off by one at a tie. code: the engine's. from_tie: distance of the golden x * s, in code units."""

    name: str
    position: int
    channel: int
    code: int
    from_tie: float


def distance_from_tie(x: np.ndarray, scale: np.ndarray, codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How far x * s lies from the tie between two codes, float64 of the shape of x [tokens, in].

    The tie between these two, not the nearest one: at 2.4999999 a 2 may become a 3, and never a 1.
    """
    return np.abs(_in_codes(x, scale) - (codes.astype(np.float64) + others) / 2)


def other_codes(x: np.ndarray, scale: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The code on the other side of the nearest tie, int64 of the shape of x."""
    return codes.astype(np.int64) + np.where(_in_codes(x, scale) >= codes, 1, -1)


def _in_codes(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """x before it is rounded to codes: x * s, or x / d where each block of channels has its d [tokens, blocks] (Q8_K).

    A block with d = 0 is all codes 0, far from any tie.
    """
    if scale.ndim == 1:
        return x.astype(np.float64) * scale[:, None]
    divisor = np.repeat(scale.astype(np.float64), x.shape[1] // scale.shape[1], axis=1)
    return np.divide(x, divisor, out=np.zeros(x.shape), where=divisor != 0)


def quantizers(golden: GoldenRun) -> Iterator[Operation]:
    """In execution order."""
    return (o for o in operations(golden.checkpoint.config) if o.kind == "quantize")


class TiedQuantizer:
    """The golden quantiser with given codes at given places. Its calls come in graph order, which tells their names."""

    def __init__(self, golden: GoldenRun, first: int, codes: Mapping[str, object], ties: Sequence[BrokenTie]) -> None:
        self._arithmetic = golden.arithmetic
        self._names = (operation.writes["codes"] for operation in quantizers(golden))
        self._first, self._codes, self._ties = first, codes, ties
        self.broken: list[BrokenTie] = []

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes int8 [tokens, in] and scale, as the golden quantiser's."""
        codes, scale = self._arithmetic.quantize(x)
        name = next(self._names)
        theirs = self._codes.get(name)
        if theirs is not None and not incomparable(codes, theirs):
            off = np.abs(np.asarray(theirs).astype(np.float64) - codes)  # not in int64, which overflows
            near = distance_from_tie(x, scale, codes, np.asarray(theirs))
            if ((off > 1) | ((off == 1) & (near > TIE))).any():
                self._codes = {}  # a divergence: after it the engine's codes are no longer ours to follow
                return codes, scale
            for position, channel in np.argwhere(off == 1).tolist():
                code = int(np.asarray(theirs)[position, channel])
                self.broken.append(BrokenTie(name, position, channel, code, float(near[position, channel])))
                codes[position, channel] = code
        for tie in self._ties:
            if tie.name == name and 0 <= tie.position - self._first < len(codes):
                codes[tie.position - self._first, tie.channel] = tie.code
        return codes, scale

    def arithmetic(self) -> Arithmetic:
        """The golden arithmetic with this quantiser."""
        return replace(self._arithmetic, quantize=self)


def follow_ties(
    golden: GoldenRun, engine: Mapping[str, object], known: Sequence[BrokenTie] = ()
) -> tuple[Trace, list[BrokenTie]]:
    """The golden trace with the engine's codes at ties, and which they were.

    engine: its trace. known: ties found otherwise, for quantisers whose codes it does not show. Without a broken tie
    the golden trace itself is returned, and nothing is computed.
    """
    shown = {
        name: codes for name, codes in engine.items() if TraceName.of(name).role == "codes" and name in golden.trace
    }
    known = [tie for tie in known if tie.name not in shown]
    if not known and all(np.array_equal(golden.trace[name], codes) for name, codes in shown.items()):
        return golden.trace, []
    quantizer = TiedQuantizer(golden, 0, shown, known)
    trace = Trace(model_hash=golden.trace.model_hash)
    c = golden.checkpoint
    forward(golden.tokens, c.weights, c.config, trace=trace, arithmetic=quantizer.arithmetic())
    return trace, [*quantizer.broken, *known]


def near_ties(golden: GoldenRun, trace: Trace, distance: float) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(codes' name, [position, channel] of each code within ``distance`` of a tie, the codes on the other side)."""
    for operation in quantizers(golden):
        name = operation.writes["codes"]
        x, scale = trace[operation.reads["x"]], trace[operation.writes["scale"]]
        others = other_codes(x, scale, trace[name])
        near = distance_from_tie(x, scale, trace[name], others) <= distance
        yield name, np.argwhere(near), others


def off(golden: np.ndarray, engine: np.ndarray, shown: np.ndarray | slice) -> float:
    """Largest |difference| of two rows where shown, relative to the largest golden value. 0 where nothing is shown."""
    difference = np.abs(engine.astype(np.float64) - golden)[shown]
    return float(difference.max(initial=0.0) / max(float(np.abs(golden).max()), 1e-30))


def first_off(
    golden: np.ndarray, engine: np.ndarray, noise: float, start: int, shown: np.ndarray | None = None
) -> int | None:
    """The first position at or after ``start`` whose rows differ by more than noise, where shown."""
    whole = slice(None)
    rows = range(start, len(golden))
    return next((p for p in rows if off(golden[p], engine[p], whole if shown is None else shown[p]) > noise), None)
