"""Rotary embeddings that are wrong."""

import numpy as np
from base_engine import Engine, F
from registry import faulty, made

KIND = "rope"


def _angles(self: Engine, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    angle = positions[:, None, None] * self.frequencies()
    return np.sin(angle), np.cos(angle)


@faulty(KIND, "pairs are neighbours instead of halves")
class Interleaved(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        sin, cos = _angles(self, positions)
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape).astype(F)


@faulty(KIND, "the rotation goes the other way for keys")
class KeysBackwards(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return Engine.rotate(self, name, x, -positions if name.endswith("k") else positions)


@faulty(
    KIND,
    "queries and keys both start at position 1",
    unseen="only differences of positions enter the scores: shifting all of them is a right engine by its logits",
)
class ShiftedBoth(Engine):
    def positions(self, count: int) -> np.ndarray:
        return Engine.positions(self, count) + 1


@faulty(KIND, "both rotations go the other way")
class BothBackwards(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return Engine.rotate(self, name, x, -positions)


@faulty(KIND, "queries alone start at position 1")
class ShiftedQueries(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return Engine.rotate(self, name, x, positions + name.endswith("q"))


@faulty(KIND, "the last pair of each head is not rotated")
class LastPairKept(Engine):
    def frequencies(self) -> np.ndarray:
        found = Engine.frequencies(self)
        found[-1] = 0
        return found


@faulty(KIND, "half of each head is rotated (partial rotary)")
class Partial(Engine):
    def frequencies(self) -> np.ndarray:
        found = Engine.frequencies(self)
        found[len(found) // 2 :] = 0
        return found


def _theta(value: float) -> type:
    class Theta(Engine):
        def frequencies(self) -> np.ndarray:
            return value ** (-np.arange(0, self.d, 2) / self.d)

    return Theta


for _name, _what, _base in [
    ("ThetaTenThousand", "theta 10,000 whatever the configuration says", _theta(10000.0)),
    ("ThetaNear", "theta off by 1 part in 1,000", _theta(500500.0)),
]:
    faulty(KIND, _what)(made(_name, _base))


@faulty(KIND, "layer 2 has no RoPE")
class OneLayerWithout(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return x if name.startswith("layers.2.") else Engine.rotate(self, name, x, positions)


@faulty(KIND, "positions are halved, as linear scaling of 2 would")
class LinearScaling(Engine):
    def frequencies(self) -> np.ndarray:
        return Engine.frequencies(self) / 2


@faulty(KIND, "angles are computed in float16")
class AnglesHalf(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angle = positions[:, None, None].astype(np.float16) * self.frequencies().astype(np.float16)
        sin, cos = np.sin(angle.astype(F)), np.cos(angle.astype(F))
        a, b = x[..., : self.d // 2], x[..., self.d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@faulty(KIND, "frequencies by hidden size instead of head size", model="kjv-ar")
class FrequenciesByHidden(Engine):
    def frequencies(self) -> np.ndarray:
        return self.theta ** (-np.arange(0, self.d, 2) / self.config["hidden_size"])


@faulty(KIND, "values are rotated, too")
class ValuesRotated(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Engine.cached(self, n, k, self.rotate(f"layers.{n}.v", v, self.positions(len(v))))
