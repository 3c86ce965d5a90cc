"""Engines that carry something from one call, session or instance to another."""

import numpy as np
from base_engine import Engine, F
from registry import faulty

KIND = "session_state"


@faulty(KIND, "in a session more than 40 tokens shorter than the longest before, embeddings come out 1 % too large")
class ResetKeepsTheLonger(Engine):
    longest = 0

    def reset(self) -> None:
        self.longest = max(self.longest, getattr(self, "length", 0))
        Engine.reset(self)

    def embed(self, ids: list[int]) -> np.ndarray:
        x = Engine.embed(self, ids)
        return x * F(1.01) if self.longest > self.length + len(ids) + 40 else x


@faulty(KIND, "reset does nothing after the first 12 sessions")
class ResetWearsOut(Engine):
    resets = 0

    def reset(self) -> None:
        self.resets += 1
        if self.resets <= 12:
            Engine.reset(self)


@faulty(KIND, "a prefix cache that compares the length of a prompt alone")
class PrefixByLength(Engine):
    def prepare(self) -> None:
        self.known: dict[int, np.ndarray] = {}

    def prefill(self, tokens: list[int]) -> np.ndarray:
        fresh = self.length == 0
        logits = Engine.prefill(self, tokens)
        return self.known.setdefault(len(tokens), logits) if fresh else logits


@faulty(KIND, "a prefix cache that compares the first 8 tokens alone")
class PrefixOfEight(Engine):
    def prepare(self) -> None:
        self.known: dict[tuple[int, ...], np.ndarray] = {}

    def prefill(self, tokens: list[int]) -> np.ndarray:
        fresh, key = self.length == 0, (len(tokens), *tokens[:8])
        logits = Engine.prefill(self, tokens)
        return self.known.setdefault(key, logits) if fresh else logits


@faulty(KIND, "a prefix cache keyed by the sum of the tokens")
class PrefixByHash(Engine):
    def prepare(self) -> None:
        self.known: dict[tuple[int, int], np.ndarray] = {}

    def prefill(self, tokens: list[int]) -> np.ndarray:
        fresh, key = self.length == 0, (len(tokens), sum(tokens) % 16)
        logits = Engine.prefill(self, tokens)
        return self.known.setdefault(key, logits) if fresh else logits


@faulty(KIND, "the key of position 0 of the first session is kept for good")
class FirstKeyForGood(Engine):
    def prepare(self) -> None:
        self.first: dict[int, np.ndarray] = {}

    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        keys[0] = self.first.setdefault(n, keys[0].copy())
        return keys, values


@faulty(KIND, "a prefill after single steps reads from position 0 on")
class PrefillBehindSteps(Engine):
    stepped = False

    def step(self, token: int) -> np.ndarray:
        self.stepped = True
        return Engine.step(self, token)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        if self.stepped:
            Engine.reset(self)
            self.stepped = False
        return Engine.prefill(self, tokens)

    def reset(self) -> None:
        Engine.reset(self)
        self.stepped = False


@faulty(KIND, "the second piece after a prefix of more than 32 tokens does not see its last row")
class SecondPieceLongPrefix(Engine):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        if rows > 1 and columns - rows > 32:
            seen[:, columns - rows - 1] = False
        return seen


@faulty(KIND, "the third piece of a prompt repeats the position of the second's last token")
class ThirdPiece(Engine):
    pieces = 0

    def reset(self) -> None:
        Engine.reset(self)
        self.pieces = 0

    def prefill(self, tokens: list[int]) -> np.ndarray:
        self.pieces += 1
        return Engine.prefill(self, tokens)

    def positions(self, count: int) -> np.ndarray:
        return Engine.positions(self, count) - (count > 1 and self.pieces > 2)


@faulty(KIND, "a piece after a prefix that is not a multiple of 16 is read by the wrong tile")
class UnalignedPiece(Engine):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        if rows > 18 and (columns - rows) % 16:
            seen[:, (columns - rows) // 16 * 16 : columns - rows] = False
        return seen


SHARED: dict[int, np.ndarray] = {}


@faulty(KIND, "all instances share their keys")
class SharedInstances(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.length == 0:
            SHARED.pop(n, None)
        SHARED[n] = np.concatenate([SHARED[n], k]) if n in SHARED else k
        self.values[n] = np.concatenate([self.values[n], v])
        rows = len(self.values[n])
        keys = np.concatenate([SHARED[n], np.zeros((max(0, rows - len(SHARED[n])), *k.shape[1:]), F)])
        return keys[:rows], self.values[n]


@faulty(KIND, "wrong from the 100th call on")
class HundredthCall(Engine):
    calls = 0

    def head(self, x: np.ndarray) -> np.ndarray:
        self.calls += 1
        return Engine.head(self, x) * F(1 if self.calls < 100 else 0.9)


@faulty(KIND, "the same prompt for the third time gets the logits of one token less")
class ThirdTime(Engine):
    def prepare(self) -> None:
        self.seen: dict[tuple[int, ...], int] = {}

    def prefill(self, tokens: list[int]) -> np.ndarray:
        key = tuple(tokens)
        self.seen[key] = self.seen.get(key, 0) + 1
        logits = Engine.prefill(self, tokens)
        return np.roll(logits, 1, 0) if self.seen[key] >= 3 and len(key) > 1 else logits


@faulty(KIND, "reset without a token read before it breaks the next prefill")
class ResetTwice(Engine):
    def reset(self) -> None:
        self.broken = getattr(self, "length", 1) == 0
        Engine.reset(self)

    def positions(self, count: int) -> np.ndarray:
        return Engine.positions(self, count) * (2 if self.broken and count > 1 else 1)


@faulty(KIND, "of a prompt more than 64 tokens shorter than the one before, the last rows are what the buffer held")
class SharedBuffer(Engine):
    def prepare(self) -> None:
        self.buffer = np.zeros((self.context, self.vocab), F)
        self.before = 0

    def prefill(self, tokens: list[int]) -> np.ndarray:
        logits = Engine.prefill(self, tokens)
        written = max(0, len(tokens) - max(0, self.before - len(tokens) - 64))
        self.buffer[:written] = logits[:written]
        self.before = len(tokens)
        return self.buffer[: len(tokens)]
