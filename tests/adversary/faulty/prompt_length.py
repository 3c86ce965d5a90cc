"""Engines that are wrong for some lengths of a prompt only."""

from collections.abc import Callable

import numpy as np
from base_engine import Engine
from registry import faulty, made

Spoil = Callable[[np.ndarray], None]


def _prefill(lengths: Callable[[int], bool], spoil: Spoil) -> Callable[[Engine, list[int]], np.ndarray]:
    def prefill(self: Engine, tokens: list[int]) -> np.ndarray:
        logits = np.array(Engine.prefill(self, tokens))
        if lengths(len(tokens)):
            spoil(logits)
        return logits

    return prefill


def _last(logits: np.ndarray) -> None:
    logits[-1] = np.roll(logits[-1], 1)


def _zeros_from(row: int) -> Spoil:
    def spoil(logits: np.ndarray) -> None:
        logits[row:] = 0

    return spoil


def _repeat_from(row: int) -> Spoil:
    def spoil(logits: np.ndarray) -> None:
        logits[row:] = logits[: len(logits) - row]

    return spoil


def _tail(width: int) -> Spoil:
    def spoil(logits: np.ndarray) -> None:
        logits[len(logits) // width * width :] *= 0.5

    return spoil


CASES: list[tuple[str, str, Callable[[int], bool], Spoil]] = [
    ("RowsBeyond64", "rows of a prompt beyond 64 are never written", lambda n: n > 64, _zeros_from(64)),
    ("RowsBeyond128", "rows of a prompt beyond 128 are never written", lambda n: n > 128, _zeros_from(128)),
    ("RowsBeyond256", "rows beyond 256 repeat those of the first batch", lambda n: 256 < n <= 512, _repeat_from(256)),
    ("TailOfOneIn32", "n % 32 = 1: the tail of one row is scaled by half", lambda n: n > 32 and n % 32 == 1, _tail(32)),
    ("TailOfTwoOrThree", "n % 4 in {2, 3}: the last row is shifted", lambda n: n > 4 and n % 4 in (2, 3), _last),
    ("PowersOfTwo", "n a power of two above 2: the last row is shifted", lambda n: n > 2 and n & (n - 1) == 0, _last),
    ("ThirtyOneOnly", "wrong at exactly 31 rows", lambda n: n == 31, _last),
    ("ThirtyTwoOnly", "wrong at exactly 32 rows", lambda n: n == 32, _last),
    ("EighteenToThirtyTwo", "wrong from 18 to 32 rows", lambda n: 18 <= n <= 32, _last),
    ("ThirtyThreeOnly", "wrong at exactly 33 rows", lambda n: n == 33, _last),
    ("ThreeOnly", "wrong at exactly 3 rows", lambda n: n == 3, _last),
    ("SevenOnly", "wrong at exactly 7 rows", lambda n: n == 7, _last),
    ("PrimesFrom19", "wrong for 19, 23, 29 rows", lambda n: n in (19, 23, 29), _last),
    ("OneBelowAWarp", "wrong for 127 and 255 rows", lambda n: n in (127, 255), _last),
    ("OneAboveAWarp", "wrong for 65 and 129 rows", lambda n: n in (65, 129), _last),
]
for _name, _what, _lengths, _spoil in CASES:
    faulty("prompt_length", _what)(made(_name, Engine, prefill=_prefill(_lengths, _spoil)))
faulty("prompt_length", "rows beyond 512 are never written", model="kjv-ar")(
    made("RowsBeyond512", Engine, prefill=_prefill(lambda n: n > 512, _zeros_from(512)))
)


@faulty("prompt_length", "the matrix kernel for 24 and more rows drops the last input column")
class ManyRowsDropAColumn(Engine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        drop = len(codes) >= 24
        return codes[:, :-1] @ self.trits[name][:, :-1].T if drop else Engine.accumulate(self, name, codes)


@faulty("prompt_length", "one scale for all rows where the batch has more than 48")
class LargeBatchSharesAScale(Engine):
    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, s = Engine.quantize(self, source, x)
        if len(x) > 48:
            s = np.full_like(s, s.min())
            codes = np.rint(x * s[:, None])
        return codes, s


@faulty("prompt_length", "more than 100 rows are cut into two halves that do not see each other")
class HalvesApart(Engine):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        if rows > 100:
            seen[rows // 2 :, : columns - rows + rows // 2] = False
        return seen
