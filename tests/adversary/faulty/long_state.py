"""Engines that are wrong from some position, or after some number of steps, on."""

import numpy as np
from base_engine import Engine, F
from registry import faulty, made

KIND = "long_state"


def _ring(size: int) -> type:
    class Ring(Engine):
        """Rows beyond the size overwrite the oldest."""

        def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            keys, values = Engine.cached(self, n, k, v)
            at = np.arange(len(keys))
            last = np.minimum(at % size + (len(keys) - 1 - at % size) // size * size, len(keys) - 1)
            return keys[last], values[last]

    return Ring


def _window(size: int) -> type:
    class Window(Engine):
        def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
            at = (columns - rows + np.arange(rows))[:, None]
            return Engine.visible(self, n, rows, columns) & (np.arange(columns) > at - size)

    return Window


def _table(size: int, wraps: bool) -> type:
    class Table(Engine):
        def positions(self, count: int) -> np.ndarray:
            at = Engine.positions(self, count)
            return at % size if wraps else np.minimum(at, size - 1)

    return Table


for _name, _what, _base in [
    ("KvRing128", "a KV ring of 128 rows", _ring(128)),
    ("KvRing256", "a KV ring of 256 rows", _ring(256)),
    ("KvRing500", "a KV ring of 500 rows in a context of 512", _ring(500)),
    ("Window64", "a token sees the last 64 positions only", _window(64)),
    ("Window256", "a token sees the last 256 positions only", _window(256)),
    ("Window511", "a token sees the last 511 positions only", _window(511)),
    ("RopeTable64", "the RoPE table of 64 wraps around", _table(64, True)),
    ("RopeTable256", "the RoPE table of 256 is held at its last row", _table(256, False)),
    ("RopeTable511", "the RoPE table lacks the context's last row", _table(511, False)),
]:
    faulty(KIND, _what)(made(_name, _base))


@faulty(KIND, "the mask is missing for rows beyond 100")
class NoMaskBeyond100(Engine):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        seen[(columns - rows + np.arange(rows)) > 100] = True
        return seen


class Counting(Engine):
    """Knows how many steps were made since the last prefill or reset."""

    steps = 0

    def reset(self) -> None:
        Engine.reset(self)
        self.steps = 0

    def prefill(self, tokens: list[int]) -> np.ndarray:
        self.steps = 0
        return Engine.prefill(self, tokens)

    def step(self, token: int) -> np.ndarray:
        self.steps += 1
        return Engine.step(self, token)


@faulty(KIND, "the 49th and later steps in a row forget position 0")
class MoreThan48Steps(Counting):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        if self.steps > 48:
            seen[:, 0] = False
        return seen


@faulty(KIND, "32 steps after a prefill the embedding's row is halved")
class StepsBehindAPrefill(Counting):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        found = Counting.prefill(self, tokens)
        self.prefilled = True
        return found

    def reset(self) -> None:
        Counting.reset(self)
        self.prefilled = False

    def embed(self, ids: list[int]) -> np.ndarray:
        x = Engine.embed(self, ids)
        return x * F(0.5) if self.prefilled and self.steps > 32 else x


@faulty(KIND, "positions are kept as int8: 128 becomes -128")
class PositionsInt8(Engine):
    def positions(self, count: int) -> np.ndarray:
        return Engine.positions(self, count).astype(np.int8).astype(np.int64)


@faulty(KIND, "positions are kept as uint8: 256 becomes 0")
class PositionsUint8(Engine):
    def positions(self, count: int) -> np.ndarray:
        return Engine.positions(self, count).astype(np.uint8).astype(np.int64)


@faulty(KIND, "the cache's page 4 (rows 64 to 79) is an alias of page 3 once it is written")
class AliasedPage(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = (a.copy() for a in Engine.cached(self, n, k, v))
        more = max(0, min(len(keys), 80) - 64)
        if more:
            keys[48 : 48 + more], values[48 : 48 + more] = keys[64 : 64 + more], values[64 : 64 + more]
        return keys, values


@faulty(KIND, "attention scores are summed in float16 where more than 200 keys are seen")
class HalfBeyond200(Engine):
    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        found = Engine.scores(self, n, head, q, k)
        return found.astype(np.float16).astype(np.float64) if len(k) > 200 else found


@faulty(KIND, "dynamic RoPE scaling sets in beyond position 256, which this checkpoint does not ask for")
class DynamicNtk(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        kept, self.theta = self.theta, self.theta * (2 if positions.max() >= 256 else 1)
        try:
            return Engine.rotate(self, name, x, positions)
        finally:
            self.theta = kept
