"""Searches for broken ties from logits alone.

At the first position that is off, sets of its codes near a tie are moved to the other side, most likely first.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tritgold.kv_cache.float32 import Float32Cache
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.comparing.ties import (
    TIE,
    BrokenTie,
    TiedQuantizer,
    distance_from_tie,
    first_off,
    near_ties,
    off,
    quantizers,
)
from tritgold_conformance.golden.run import GoldenRun

# Among the 400 models one needs 109 trials: eight exact ties at one position, four of them broken.
TOGETHER = TIE / 5  # limit for the sum of distances of several broken ties at one position
MAX_TRIALS = 256  # sets of ties that are tried at one position
FEW_TRIALS = 16  # the same in an engine that is known to be wrong: enough for one or two broken ties, which most are
# With more codes near a tie at one position, the broken ones cannot be searched for; nor where MAX_TRIALS sets are not
# all sets of those ties that noise breaks as easily as not. At position 0 attention mixes one value alone, so a value
# at an exact tie stays there: 19 groups at one position of a right llama.cpp, on a model of two layers.
SEARCHABLE = 128
EASY = 5e-5  # distance from a tie, in code units: the largest at which a tie was seen broken
BLOCK = 32  # positions that are computed at a time after a tie was found
MAX_BOTH = 16  # ties of earlier positions that are tried with ties of this one, and number of sets of these
MAX_READ = 4096  # positions that are computed again, in all trials of ties that do not show in their own row


@dataclass
class Resolved:
    """logits: golden, after the ties that explain the engine's. complete: no row is off any more.

    many: the search stopped at a position with too many codes near a tie for a search that finds the broken ones.
    """

    logits: np.ndarray
    ties: list[BrokenTie] = field(default_factory=list)
    complete: bool = False
    many: bool = False


def resolve_ties(
    golden: GoldenRun,
    engine: np.ndarray,
    noise: float,
    shown: np.ndarray | None = None,
    start: tuple[np.ndarray, Sequence[BrokenTie]] | None = None,
    trials: int = MAX_TRIALS,
) -> Resolved:
    """Explain an engine's logits [tokens, vocab] by broken ties, position by position.

    noise: how much a row may differ, relative to its largest golden value. shown: bool [tokens, vocab], the logits that
    the engine gives, if it does not give all. start: golden logits after known ties, and these ties. trials: sets that
    are tried at one position; with fewer than MAX_TRIALS ties of earlier positions are not. Costs
    nothing if no row is off, otherwise at most two golden passes, and up to MAX_TRIALS single steps for each position
    with ties. Stops at the first position that no ties explain; the positions after it get the golden logits
    after the ties that were found.
    """
    logits, known = start or (golden.logits, ())
    shown = np.ones(engine.shape, bool) if shown is None else shown
    position = first_off(logits, engine, noise, 0, shown)
    search = _Search(golden, engine, Resolved(logits.copy(), []), shown, trials)
    search.resolved.ties = [tie for tie in known if position is None or tie.position < position]
    while position is not None and search.explain(position, noise):
        position = search.next_off(position + 1, noise)
    if position is not None:
        search.run_on(position, len(engine))
    search.resolved.complete = position is None
    return search.resolved


class _Search:
    """Golden passes over the same tokens with more and more codes moved to the other side."""

    def __init__(
        self, golden: GoldenRun, engine: np.ndarray, resolved: Resolved, shown: np.ndarray, trials: int
    ) -> None:
        self.golden, self.engine, self.resolved, self.shown, self.trials = golden, engine, resolved, shown, trials
        self.cache = Float32Cache(golden.checkpoint.config, len(golden.tokens))

    def explain(self, position: int, noise: float) -> bool:
        """Find the broken ties that bring this position's row within noise: its own, or one of an earlier position."""
        if self._own(position, noise, self.trials):
            return True
        quiet = self.trials == MAX_TRIALS and position > 0 and not self.resolved.many
        return quiet and self._quiet(position, noise)

    def _quiet(self, position: int, noise: float) -> bool:
        """Find a broken tie of an earlier position that shows not in its own row but through its keys and values.

        One that changed its own row by 2e-6 changed the next one by 4e-3 (kjv-ar, codes of layer 4 of 6). Each is tried
        alone, the nearest to its tie first, and then with ties of this position; rows between must stay within noise.
        """
        self._to(0)
        trace = Trace()
        self._run(0, position, [], trace)
        before = [ties for ties in self._ties(trace, 0) if ties[0].from_tie <= TOGETHER]
        left, possible = MAX_READ, []
        for ties in sorted(before, key=lambda ties: ties[0].from_tie):
            start = ties[0].position
            left -= position + 1 - start
            if left < 0:
                break
            self._to(start)
            rows = self._run(start, position + 1, ties)
            self.cache.truncate(start)
            at = slice(start, position + 1)
            off_at = first_off(rows, self.engine[at], noise, 0, self.shown[at])
            if off_at is None:
                self._accept(ties, start, rows)
                return True
            if off_at == position - start:
                possible.append((ties, start, rows))
        for ties, start, rows in possible[:MAX_BOTH]:
            kept = self.resolved.ties, self.resolved.logits.copy()
            self._accept(ties, start, rows)
            if self._own(position, noise, MAX_BOTH):
                return True
            self.cache.truncate(start)
            self.resolved.ties, self.resolved.logits = kept
        return False

    def _accept(self, ties: list[BrokenTie], start: int, rows: np.ndarray) -> None:
        self.resolved.ties = [*self.resolved.ties, *ties]
        self.resolved.logits[start : start + len(rows)] = rows

    def _own(self, position: int, noise: float, trials: int) -> bool:
        """Find the broken ties of one position that bring its row within noise.

        Sets are tried in the order of the sum of their distances: the smaller it is, the less noise breaks all of them.
        No set is excluded because of the effect of a part of it: the effects of two broken ties do not add up.
        """
        self._to(position)
        number, easy = itertools.count(), 0  # of two equally likely sets, the one found first is tried first
        waiting: list[tuple[float, int, list[BrokenTie]]] = [(0.0, next(number), [])]
        for _ in range(trials):
            if not waiting:
                break
            distance, _, ties = heapq.heappop(waiting)
            trace = Trace()
            row = self._run(position, position + 1, ties, trace)[0]
            if off(row, self.engine[position], self.shown[position]) <= noise:
                self._accept(ties, position, row[None])
                return True
            self.cache.truncate(position)
            near = self._near(position, trace, ties[-1] if ties else None)
            if not ties and sum(map(len, near)) > SEARCHABLE:
                self.resolved.many = True
                return False
            if not ties:
                easy = sum(group[0].from_tie <= EASY for group in near)
            for more in near:
                total = distance + more[0].from_tie
                if not ties or total <= TOGETHER:
                    heapq.heappush(waiting, (total, next(number), [*ties, *more]))
        self.resolved.many = trials == MAX_TRIALS and 2**easy > MAX_TRIALS
        return False

    def next_off(self, position: int, noise: float) -> int | None:
        """The first position from this one on that is off after the ties found so far."""
        for start in range(position, len(self.engine), BLOCK):
            stop = min(start + BLOCK, len(self.engine))
            self.run_on(start, stop)
            rows = slice(start, stop)
            off = first_off(self.resolved.logits[rows], self.engine[rows], noise, 0, self.shown[rows])
            if off is not None:
                return start + off
        return None

    def run_on(self, start: int, stop: int) -> None:
        """Compute the golden rows of these positions after the ties found so far."""
        self._to(start)
        if stop > start:
            self.resolved.logits[start:stop] = self._run(start, stop, [])

    def _to(self, position: int) -> None:
        self.cache.truncate(min(position, self.cache.length))
        if position > self.cache.length:
            self._run(self.cache.length, position, [])

    def _near(self, position: int, trace: Trace, last: BrokenTie | None) -> list[list[BrokenTie]]:
        """Codes within TIE of a tie, moved to the other side: those after the last one in execution order.

        A broken tie changes nothing before it, so each set is visited once, with its own inputs. Channels with
        the same x break together: at position 0 the attention mix is v itself, repeated for every query head
        of a group.
        """
        found = self._ties(trace, position)
        order = list(trace.arrays).index
        place = (order(last.name), last.channel) if last else (-1, -1)
        return [ties for ties in found if (order(ties[-1].name), ties[-1].channel) > place]

    def _ties(self, trace: Trace, first: int) -> list[list[BrokenTie]]:
        """All codes of a trace within TIE of a tie, in groups that break together; first: position of its first row."""
        found: dict[tuple[str, int, float], list[BrokenTie]] = {}
        sources = {o.writes["codes"]: (o.reads["x"], o.writes["scale"]) for o in quantizers(self.golden)}
        for name, near, others in near_ties(self.golden, trace, TIE):
            x, scale = (trace[source] for source in sources[name])
            distance = distance_from_tie(x, scale, trace[name], others)
            for row, channel in near.tolist():
                from_tie = float(distance[row, channel])
                tie = BrokenTie(name, first + row, channel, int(others[row, channel]), from_tie)
                found.setdefault((name, row, float(x[row, channel])), []).append(tie)
        return list(found.values())

    def _run(self, start: int, stop: int, ties: list[BrokenTie], trace: Trace | None = None) -> np.ndarray:
        c, quantizer = self.golden.checkpoint, TiedQuantizer(self.golden, start, {}, [*self.resolved.ties, *ties])
        tokens = self.golden.tokens[start:stop]
        return forward(tokens, c.weights, c.config, self.cache, trace, arithmetic=quantizer.arithmetic())
