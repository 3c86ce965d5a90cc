"""Engines that are wrong for some tokens only."""

from collections.abc import Callable

import numpy as np
from base_engine import Engine, F
from registry import faulty, made

KIND = "vocabulary"
Change = Callable[[Engine, np.ndarray], None]


def _rows(change: Change, where: str) -> Callable[[Engine], None]:
    """Damage the embedding as it is read (in), as the head (out), or both."""

    def prepare(self: Engine) -> None:
        damaged = self.floats["embedding"].copy()
        change(self, damaged)
        self.floats.setdefault("lm_head", self.floats["embedding"])
        if where in ("in", "both"):
            self.floats["embedding"] = damaged
        if where in ("out", "both"):
            self.floats["lm_head"] = damaged

    return prepare


def _swap(a: int, b: int) -> Change:
    def change(self: Engine, e: np.ndarray) -> None:
        e[[a, b]] = e[[b, a]]

    return change


def _set(ids: slice | list[int], value: float) -> Change:
    def change(self: Engine, e: np.ndarray) -> None:
        e[ids] = value

    return change


def _special(self: Engine, e: np.ndarray) -> None:
    eos = self.config["eos_token_id"]
    e[[self.config["bos_token_id"], *(eos if isinstance(eos, list) else [eos])]] = 0


def _last_of_tile(self: Engine, e: np.ndarray) -> None:
    e[self.vocab // 32 * 32 :] *= 0.5


CASES: list[tuple[str, str, Change, str]] = [
    ("SwappedRows", "rows 1 and 2 of the embedding are swapped", _swap(1, 2), "in"),
    ("SwappedHeadRows", "rows 1 and 2 of the head are swapped", _swap(1, 2), "out"),
    ("ZeroRowZero", "row 0 of the embedding is zero", _set([0], 0), "in"),
    ("ZeroLastRow", "the last row of the embedding is zero", _set([-1], 0), "in"),
    ("NanRow", "row 3 of the embedding is NaN", _set([3], np.nan), "in"),
    ("ZeroSpecials", "BOS and the ends of sequence have rows of zero", _special, "in"),
    ("LastTileOfIds", "ids of the last tile (vocabulary % 32) are read at half size", _last_of_tile, "in"),
    ("LastTileOfHead", "logits of the last tile (vocabulary % 32) are half", _last_of_tile, "out"),
    ("OneRowOfMany", "row 201 of the embedding has one wrong channel", lambda s, e: e[201].put(7, 3), "in"),
    ("ZeroRange", "rows 230 to 239 of the embedding are zero", _set(slice(230, 240), 0), "in"),
]
for _name, _what, _change, _where in CASES:
    faulty(KIND, _what)(made(_name, Engine, prepare=_rows(_change, _where)))
faulty(KIND, "rows 1,500 to 1,999 of the embedding are zero", model="kjv-ar")(
    made("ZeroThousand", Engine, prepare=_rows(_set(slice(1500, 2000), 0), "in"))
)
faulty(KIND, "row 1,777 of the embedding is that of 1,778", model="kjv-ar")(
    made("OneOf2048", Engine, prepare=_rows(lambda s, e: e[1777].put(range(256), e[1778]), "in"))
)


@faulty(KIND, "ids above 255 are kept in a byte")
class IdsInAByte(Engine):
    def embed(self, ids: list[int]) -> np.ndarray:
        return Engine.embed(self, [i % 256 for i in ids])


@faulty(KIND, "a token that stood two positions before is read from a stale buffer")
class RepeatedToken(Engine):
    def embed(self, ids: list[int]) -> np.ndarray:
        x = Engine.embed(self, ids)
        for i in range(2, len(ids)):
            if ids[i] == ids[i - 2]:
                x[i] = x[i - 1]
        return x


@faulty(KIND, "a run of three equal tokens counts as two")
class RunOfEqual(Engine):
    def embed(self, ids: list[int]) -> np.ndarray:
        x = Engine.embed(self, ids)
        for i in range(2, len(ids)):
            if ids[i] == ids[i - 1] == ids[i - 2]:
                x[i] = 0
        return x


@faulty(KIND, "BOS anywhere but in front is passed over")
class BosInside(Engine):
    def embed(self, ids: list[int]) -> np.ndarray:
        x = Engine.embed(self, ids)
        x[[i for i, t in enumerate(ids) if t == self.config["bos_token_id"] and i + self.length > 0]] = 0
        return x


@faulty(KIND, "a text that begins with BOS starts at position 1")
class BosShiftsPositions(Engine):
    shifted = 0

    def read(self, ids: list[int]) -> np.ndarray:
        if self.length == 0:
            self.shifted = int(ids[0] == self.config["bos_token_id"])
        return Engine.read(self, ids)

    def frequencies(self) -> np.ndarray:
        return Engine.frequencies(self) * (1.5 if self.shifted else 1)


@faulty(KIND, "the logit of the token that was just read is lowered")
class OwnLogit(Engine):
    def read(self, ids: list[int]) -> np.ndarray:
        logits = Engine.read(self, ids)
        logits[np.arange(len(ids)), ids] -= F(1e-2)
        return logits


@faulty(KIND, "all logits of ids above 2,000 are wrong by 1 %", model="kjv-ar")
class HighLogits(Engine):
    def head(self, x: np.ndarray) -> np.ndarray:
        logits = Engine.head(self, x)
        logits[:, 2000:] *= F(1.01)
        return logits
