"""The roof of a run: the read bandwidth of memory, measured again in every round, because a shared machine changes.

The same processors and threads read one buffer far larger than any cache in two ways, and the faster counts: NumPy's
maximum of uint64, a thread a slice (it releases the interpreter's lock, and one vector instruction takes in a whole
cache line or half of one), and the engine's own compiler summing columns of int32, whose additions it may vectorise
because integers have no order. Both read every byte once and write next to nothing.
"""

import statistics
import threading
from collections.abc import Callable

import numpy as np

from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.results import Bandwidth
from tritgold_conformance.bench.timing import timed

COLUMNS = 8192

Reader = Callable[[np.ndarray], Callable[[], object]]


class Buffer:
    """A buffer of ``size`` bytes, and every way to read it.

    compiled: takes an int32 array [rows, COLUMNS] and returns a function that reads it once; None without a compiler.
    """

    def __init__(self, threads: int, compiled: Reader | None, size: int) -> None:
        buffer = np.ones(size // 8, np.uint64)
        self._bytes = buffer.nbytes
        parts = np.array_split(buffer, threads)
        self._readers: dict[str, Callable[[], object]] = {"numpy maximum": lambda: _maxima(parts)}
        if compiled is not None:
            self._readers["compiled column sums"] = compiled(buffer.view(np.int32).reshape(-1, COLUMNS))

    def bandwidth(self, runs: int = 3) -> dict[str, float]:
        """Bytes a second by way of reading, medians of ``runs`` after one that is not counted."""
        return {
            name: self._bytes / statistics.median(timed(read, runs + 1)[1:]) for name, read in self._readers.items()
        }


def _maxima(parts: list[np.ndarray]) -> None:
    """The maximum of each part, all at the same time."""
    others = [threading.Thread(target=part.max) for part in parts[1:]]
    for other in others:
        other.start()
    parts[0].max()
    for other in others:
        other.join()


class Roof:
    """reading: the process that holds the buffer. found: updated with every sample."""

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


def roofline_fraction(bytes_moved: int, seconds: list[float], roofs: list[float]) -> float:
    """The share of the roof if only ``bytes_moved`` are read: the median over rounds, each with its own roof.

    >>> roofline_fraction(10, [1.0, 2.0, 1.0], [20.0, 10.0, 20.0])
    0.5
    """
    return statistics.median(bytes_moved / one / roof for one, roof in zip(seconds, roofs, strict=True))
