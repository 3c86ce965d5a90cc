"""KV caches that keep or return the wrong rows."""

import numpy as np
from base_engine import Engine, F
from registry import faulty

KIND = "cache"


@faulty(KIND, "a step's key overwrites the row before it")
class OneRowLow(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        if len(k) == 1 and len(keys) > 1:
            keys[-2] = keys[-1]
        return keys, values


@faulty(KIND, "keys and values of the last layer are those of the layer before")
class SharedLayers(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        return (keys, self.values[n - 1]) if n == self.layers - 1 else (keys, values)


@faulty(KIND, "what a step adds is not kept")
class StepsNotKept(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        keys, values = keys.copy(), values.copy()
        if len(k) == 1:
            self.values[n][-1] = 0
        return keys, values


@faulty(KIND, "keys are kept before RoPE and never rotated in a step")
class KeptUnrotated(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return x if name.endswith("k") and len(x) == 1 else Engine.rotate(self, name, x, positions)


@faulty(KIND, "the key heads of a kept row are transposed where it was written by a step")
class TransposedRow(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Engine.cached(self, n, k[:, ::-1] if len(k) == 1 else k, v)


@faulty(KIND, "pages of 16: the first row of each page but the first is lost when a step opens it")
class PageOpenedByStep(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lost = len(k) == 1 and self.length and self.length % 16 == 0
        return Engine.cached(self, n, k * F(0 if lost else 1), v)


@faulty(KIND, "pages of 16: a prefill that ends inside a page leaves the next step the wrong slot")
class UnfinishedPage(Engine):
    ended = 0

    def prefill(self, tokens: list[int]) -> np.ndarray:
        found = Engine.prefill(self, tokens)
        self.ended = self.length
        return found

    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = len(k) == 1 and self.length == self.ended and self.ended % 16
        return Engine.cached(self, n, k, v * F(0.5 if first else 1))


@faulty(KIND, "attention sinks: rows 4 to 7 are evicted beyond 64 positions")
class SinksAlone(Engine):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        seen[np.ix_((columns - rows + np.arange(rows)) >= 64, (np.arange(columns) >= 4) & (np.arange(columns) < 8))] = 0
        return seen


@faulty(
    KIND, "a row whose value equals the one before (the same token again, in layer 0) is not written: its key is lost"
)
class EqualRowsOnce(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        for i in range(max(1, len(keys) - len(k)), len(keys)):
            if (values[i] == values[i - 1]).all():
                keys[i] = keys[i - 1]
        return keys, values


@faulty(KIND, "values of the prompt are rounded to 4 bits, those of steps are not")
class PromptFourBits(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(v) > 1:
            s = np.abs(v).max(-1, keepdims=True) / 7
            v = np.rint(v / np.where(s == 0, 1, s)) * s
        return Engine.cached(self, n, k, v)


@faulty(KIND, "the cache holds 256 rows; what does not fit is dropped without a word")
class FullCache(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        keys, values = keys.copy(), values.copy()
        keys[256:], values[256:] = 0, 0
        return keys, values


@faulty(KIND, "the length is advanced before the last layer, whose positions are one too high in steps")
class AdvancedEarly(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        early = name == f"layers.{self.layers - 1}.q" and len(x) == 1
        return Engine.rotate(self, name, x, positions + early)
