"""The roof of a run: how fast memory is read, measured again in every round, for a shared machine changes meanwhile."""

import statistics

from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.results import Bandwidth


class Roof:
    """reading: a process of its own, whose buffer is nobody's memory. found: filled with every sample."""

    def __init__(self, reading: Worker, threads: int, size: int) -> None:
        self._reading = reading
        self._samples: list[dict[str, float]] = []
        self.found = Bandwidth(threads=threads, size=size, best=0.0, ways={}, samples=0)

    def sample(self) -> float:
        """Bytes a second now, by the fastest way."""
        ways = self._reading.ask("bandwidth", size=self.found.size)
        self._samples.append(ways)
        self.found.samples = len(self._samples)
        self.found.ways = {name: statistics.median(one[name] for one in self._samples) for name in ways}
        self.found.best = statistics.median(max(one.values()) for one in self._samples)
        return float(max(ways.values()))


def share(moved: int, seconds: list[float], roofs: list[float]) -> float:
    """Of the roof, were ``moved`` bytes all that is read: the median over rounds, each with the roof of its own time.

    >>> share(10, [1.0, 2.0, 1.0], [20.0, 10.0, 20.0])
    0.5
    """
    return statistics.median(moved / one / roof for one, roof in zip(seconds, roofs, strict=True))
