"""How fast memory is read, for the roofline: the same run, the same processors, the same number of threads.

Two ways over one buffer far larger than any cache, and the faster counts: NumPy's maximum of uint64, a thread a slice
(it releases the interpreter's lock, and one vector instruction takes in a whole cache line or half of one), and the
engine's own compiler summing columns of int32, whose additions it may vectorise because integers have no order. Both
read every byte once and write next to nothing.
"""

import statistics
import threading
import time
from collections.abc import Callable

import numpy as np

SIZE = 512 << 20  # bytes
RUNS = 3
COLUMNS = 8192

Reader = Callable[[np.ndarray], Callable[[], object]]


class Buffer:
    """What is read, and every way to read it.

    compiled: takes an int32 array [rows, COLUMNS] and gives a function that reads it once; None for none.
    """

    def __init__(self, threads: int, compiled: Reader | None, size: int = SIZE) -> None:
        buffer = np.ones(size // 8, np.uint64)
        self._bytes = buffer.nbytes
        self._ways: dict[str, Callable[[], object]] = {
            "numpy maximum": lambda: _maxima(np.array_split(buffer, threads))
        }
        if compiled is not None:
            self._ways["compiled column sums"] = compiled(buffer.view(np.int32).reshape(-1, COLUMNS))

    def bandwidth(self, runs: int = RUNS) -> dict[str, float]:
        """Bytes a second by way, medians of ``runs`` after one that is not counted."""
        return {name: self._bytes / _median(way, runs) for name, way in self._ways.items()}


def _maxima(parts: list[np.ndarray]) -> None:
    """The maximum of each part, all at the same time."""
    others = [threading.Thread(target=part.max) for part in parts[1:]]
    for other in others:
        other.start()
    parts[0].max()
    for other in others:
        other.join()


def _median(way: Callable[[], object], runs: int) -> float:
    way()
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        way()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
