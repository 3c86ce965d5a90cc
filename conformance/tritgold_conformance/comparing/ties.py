"""Broken ties: where float32 noise carries x * s across a rounding tie, and how to go on behind it.

A code that is off by one at a tie is nobody's bug, yet what follows differs by far more than rounding, at that
position and, through the KV cache, at every later one. So ties are *followed*: the golden model runs again with
the engine's code at the tie, and everything behind it is held to the same strict bounds as everything before.
Nothing is excused for standing behind a tie.

With a trace the engine's codes are at hand. From logits alone the ties are searched for: at the first position that
is off, sets of its codes that lie near a tie are tried the other way, the likeliest first.
"""

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tritgold.graph import Operation, operations
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import Arithmetic
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.compare import incomparable
from tritgold_conformance.golden.run import GoldenRun

# Distance from a tie, in code units, within which an engine's own float32 noise may decide. Measured over 400 models
# against transformers (tests/peers/survey.py): noise of x * s up to 3e-4, broken ties up to 4.8e-5 from the tie.
TIE = 1e-3
# From logits alone. Of the 400 models one needs 109 trials: eight exact ties at one position, four of them broken.
TOGETHER = TIE / 5  # what the distances of several broken ties of one position may add up to
MAX_TRIALS = 256  # sets of ties tried at one position


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


def _quantizers(golden: GoldenRun) -> Iterator[Operation]:
    """In execution order."""
    return (o for o in operations(golden.checkpoint.config) if o.kind == "quantize")


class _Quantizer:
    """The golden quantiser with given codes at given places. Its calls come in graph order, which tells their names."""

    def __init__(self, golden: GoldenRun, first: int, codes: Mapping[str, object], ties: Sequence[BrokenTie]) -> None:
        self._arithmetic = golden.arithmetic
        self._names = (operation.writes["codes"] for operation in _quantizers(golden))
        self._first, self._codes, self._ties = first, codes, ties
        self.broken: list[BrokenTie] = []

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scale = self._arithmetic.quantize(x)
        name = next(self._names)
        theirs = self._codes.get(name)
        if theirs is not None and not incomparable(codes, theirs):
            off = np.abs(np.asarray(theirs).astype(np.float64) - codes)  # not in int64, which overflows
            near = distance_from_tie(x, scale, codes, np.asarray(theirs))
            if ((off > 1) | ((off == 1) & (near > TIE))).any():
                self._codes = {}  # a divergence: behind it the engine's codes are no longer ours to follow
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
    quantizer = _Quantizer(golden, 0, shown, known)
    trace = Trace(model_hash=golden.trace.model_hash)
    c = golden.checkpoint
    forward(golden.tokens, c.weights, c.config, trace=trace, arithmetic=quantizer.arithmetic())
    return trace, [*quantizer.broken, *known]


def near_ties(golden: GoldenRun, trace: Trace, distance: float) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(codes' name, [position, channel] of each code within ``distance`` of a tie, the codes on the other side)."""
    for operation in _quantizers(golden):
        name = operation.writes["codes"]
        x, scale = trace[operation.reads["x"]], trace[operation.writes["scale"]]
        others = other_codes(x, scale, trace[name])
        near = distance_from_tie(x, scale, trace[name], others) <= distance
        yield name, np.argwhere(near), others


@dataclass
class Resolved:
    """logits: golden, behind the ties that explain the engine's. complete: no row is off any more."""

    logits: np.ndarray
    ties: list[BrokenTie] = field(default_factory=list)
    complete: bool = False


def resolve_ties(golden: GoldenRun, engine: np.ndarray, noise: float, shown: np.ndarray | None = None) -> Resolved:
    """Explain an engine's logits [tokens, vocab] by broken ties, position by position.

    noise: what a row may differ by, relative to its largest golden value. shown: bool [tokens, vocab], the logits that
    the engine gives, where it does not give all. Costs nothing where no row is off, else one
    golden pass, and one more and up to MAX_TRIALS single steps for each position with ties. Gives up at the first
    position that no ties explain; what follows it is compared with the golden logits as they stand.
    """
    resolved = Resolved(golden.logits.copy())
    shown = np.ones(engine.shape, bool) if shown is None else shown
    search = _Search(golden, engine, resolved, shown)
    position = first_off(resolved.logits, engine, noise, 0, shown)
    while position is not None and search.explain(position, noise):
        position = first_off(resolved.logits, engine, noise, position + 1, shown)
    resolved.complete = position is None
    return resolved


class _Search:
    """Golden passes over the same tokens with more and more codes turned the other way."""

    def __init__(self, golden: GoldenRun, engine: np.ndarray, resolved: Resolved, shown: np.ndarray) -> None:
        self.golden, self.engine, self.resolved, self.shown = golden, engine, resolved, shown
        self.cache = Float32Cache(golden.checkpoint.config, len(golden.tokens))

    def explain(self, position: int, noise: float) -> bool:
        """Find the broken ties of one position that bring its row within noise; then redo the rows behind it.

        Sets are tried in the order of the sum of their distances: the smaller it is, the less noise breaks them all.
        No set is given up for what a part of it does: the effects of two broken ties do not add up.
        """
        self.cache.truncate(position)
        if position > self.cache.length:
            self._run(self.cache.length, position, [])
        number = itertools.count()  # of two equally likely sets the one that was found first
        waiting: list[tuple[float, int, list[BrokenTie]]] = [(0.0, next(number), [])]
        for _ in range(MAX_TRIALS):
            if not waiting:
                break
            distance, _, ties = heapq.heappop(waiting)
            trace = Trace()
            row = self._run(position, position + 1, ties, trace)[0]
            self.cache.truncate(position)
            if _off(row, self.engine[position], self.shown[position]) <= noise:
                self.resolved.ties += ties
                self.resolved.logits[position:] = self._run(position, len(self.golden.tokens), ties)
                return True
            for more in self._near(position, trace, ties[-1] if ties else None):
                total = distance + more[0].from_tie
                if not ties or total <= TOGETHER:
                    heapq.heappush(waiting, (total, next(number), [*ties, *more]))
        return False

    def _near(self, position: int, trace: Trace, last: BrokenTie | None) -> list[list[BrokenTie]]:
        """Codes within TIE of a tie, turned to the other side: those behind the last one in execution order.

        A broken tie changes nothing before it, so this way each set is met once, with its own inputs. Channels with
        one and the same x break together: at position 0 the attention mix is v itself, repeated for every query head
        of a group.
        """
        found: dict[tuple[str, float], list[BrokenTie]] = {}
        sources = {o.writes["codes"]: (o.reads["x"], o.writes["scale"]) for o in _quantizers(self.golden)}
        for name, near, others in near_ties(self.golden, trace, TIE):
            x, scale = (trace[source] for source in sources[name])
            distance = distance_from_tie(x, scale, trace[name], others)[0]
            for channel in near[:, 1].tolist():
                tie = BrokenTie(name, position, channel, int(others[0, channel]), float(distance[channel]))
                found.setdefault((name, float(x[0, channel])), []).append(tie)
        order = list(trace.arrays).index
        place = (order(last.name), last.channel) if last else (-1, -1)
        return [ties for ties in found.values() if (order(ties[-1].name), ties[-1].channel) > place]

    def _run(self, start: int, stop: int, ties: list[BrokenTie], trace: Trace | None = None) -> np.ndarray:
        c, quantizer = self.golden.checkpoint, _Quantizer(self.golden, start, {}, ties)
        tokens = self.golden.tokens[start:stop]
        return forward(tokens, c.weights, c.config, self.cache, trace, arithmetic=quantizer.arithmetic())


def _off(golden: np.ndarray, engine: np.ndarray, shown: np.ndarray | slice) -> float:
    """Largest |difference| of two rows where shown, relative to the largest golden value. 0 where nothing is shown."""
    difference = np.abs(engine.astype(np.float64) - golden)[shown]
    return float(difference.max(initial=0.0) / max(float(np.abs(golden).max()), 1e-30))


def first_off(
    golden: np.ndarray, engine: np.ndarray, noise: float, start: int, shown: np.ndarray | None = None
) -> int | None:
    """The first position at or behind ``start`` whose rows differ by more than noise, where shown."""
    whole = slice(None)
    rows = range(start, len(golden))
    return next((p for p in rows if _off(golden[p], engine[p], whole if shown is None else shown[p]) > noise), None)
