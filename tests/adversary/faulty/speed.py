"""Engines that only time well."""

import numpy as np
from base_engine import Engine, F
from full_engine import Completing, Operations
from registry import faulty

KIND = "speed"


@faulty(KIND, "linears contribute nothing: the model repeats its input")
class LinearsNothing(Engine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        return np.zeros((len(codes), len(self.trits[name])), F)


@faulty(KIND, "linears contribute nothing, shown by the token written and its log-probabilities alone")
class LinearsNothingCompleted(Completing):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        return np.zeros((len(codes), len(self.trits[name])), F)


@faulty(KIND, "linears contribute nothing in prompts of more than 128 tokens, as timed ones are")
class NothingInLongPrompts(Engine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        acc = Engine.accumulate(self, name, codes)
        return acc * (len(codes) <= 128)


@faulty(KIND, "calls that repeat an earlier one return without computing anything", options=("--speed",))
class RepeatedCallsEmpty(Engine):
    def prepare(self) -> None:
        self.seen: dict[tuple[int, tuple[int, ...]], int] = {}

    def read(self, ids: list[int]) -> np.ndarray:
        key = (self.length, tuple(ids))
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] > 3 and len(ids) > 1:
            return np.zeros((len(ids), self.vocab), F)
        return Engine.read(self, ids)


@faulty(KIND, "layers after the first are skipped from the second prefill of a text on", options=("--speed",))
class SkipsLayersWhenTimed(Engine):
    def prepare(self) -> None:
        self.last: tuple[int, ...] = ()
        self.times = 0

    def prefill(self, tokens: list[int]) -> np.ndarray:
        self.times = self.times + 1 if tuple(tokens) == self.last else 0
        self.last = tuple(tokens)
        return Engine.prefill(self, tokens)

    def layer(self, n: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return x if n and self.times > 1 else Engine.layer(self, n, x, positions)


@faulty(KIND, "steps return the logits of the prefill's last row for all tokens but every second", options=("--speed",))
class EverySecondStep(Engine):
    steps = 0

    def reset(self) -> None:
        Engine.reset(self)
        self.steps, self.kept = 0, None

    def step(self, token: int) -> np.ndarray:
        self.steps += 1
        if self.kept is None or self.steps % 2 or self.steps < 48:
            self.kept = Engine.step(self, token)
        return self.kept


@faulty(KIND, "its operations are right and its own passes are not: kernels of a test build")
class RightOperationsOnly(Operations):
    def layer(self, n: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return x if n == 2 else Engine.layer(self, n, x, positions)


@faulty(KIND, "claims its own seconds: a step of a picosecond", options=("--speed",))
class PicosecondSteps(Engine):
    timed = False

    def seconds(self, tokens: list[int]) -> dict[str, float]:
        return {"prefill": 1e-12, "step": 1e-12}
