"""Engines that are wrong now and then."""

import numpy as np
from base_engine import Engine, F
from registry import faulty, made

KIND = "chance"


def _race(share: float, steps: bool) -> type:
    class Race(Engine):
        def prepare(self) -> None:
            self.chance = np.random.default_rng()

        def read(self, ids: list[int]) -> np.ndarray:
            logits = Engine.read(self, ids)
            if (steps or len(ids) > 1) and self.chance.random() < share:
                logits[-1] = np.roll(logits[-1], 1)
            return logits

    return Race


MISSED = "chance: missed in one check of 17, which the coverage says; no number of calls is enough for certain"
for _name, _what, _base, _unseen in [
    ("RaceThreePercent", "a race spoils the last row of 3 % of the prefills", _race(0.03, False), ""),
    ("RaceOnePercent", "a race spoils the last row of 1 % of the prefills", _race(0.01, False), MISSED),
    ("RaceThirtyPercent", "a race spoils the last row of 30 % of the prefills", _race(0.3, False), ""),
    ("RaceOfSteps", "a race spoils 1 % of all calls", _race(0.01, True), ""),
]:
    faulty(KIND, _what, unseen=_unseen)(made(_name, _base))


@faulty(KIND, "an unwritten buffer: the last row of a product is what memory held, zero or not, in 1 of 200")
class UnwrittenRow(Engine):
    def prepare(self) -> None:
        self.chance = np.random.default_rng()

    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        acc = Engine.accumulate(self, name, codes)
        if len(codes) > 1 and self.chance.random() < 0.005:
            acc[-1] = 0
        return acc


@faulty(KIND, "two threads add to one accumulator: a column loses a part in 1 of 500 products")
class LostUpdate(Engine):
    def prepare(self) -> None:
        self.chance = np.random.default_rng()

    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        acc = Engine.accumulate(self, name, codes)
        if self.chance.random() < 0.002:
            acc[:, 0] -= codes[:, : codes.shape[1] // 2] @ self.trits[name][0, : codes.shape[1] // 2]
        return acc


@faulty(
    KIND,
    "wrong in half of all processes, right in all calls of the others",
    unseen="chance: all questions are asked in one process, and in every second one there is nothing to see",
)
class HalfOfAllProcesses(Engine):
    def prepare(self) -> None:
        if np.random.default_rng().random() < 0.5:
            self.floats["final_norm"] = self.floats["final_norm"] * F(1.001)
