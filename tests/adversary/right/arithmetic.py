"""Right engines whose floats come about in another way."""

from collections.abc import Callable

import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import made, right

D = np.float64


@right("all of it in float64, rounded where values are handed out")
class AllDouble(Engine):
    def prepare(self) -> None:
        self.floats = {name: a.astype(D) for name, a in self.floats.items()}

    def head(self, x: np.ndarray) -> np.ndarray:
        return (x.astype(D) @ self.floats["embedding"].T).astype(F)


@right("float32 in all places, norms and softmax included")
class AllSingle(Engine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True, dtype=F) + self.eps) * self.floats[name]

    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return q @ k.T / F(np.sqrt(self.d))

    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        powers = np.exp((scores - scores.max(-1, keepdims=True)).astype(F))
        return powers / powers.sum(-1, keepdims=True, dtype=F)

    def mix(self, n: int, probs: np.ndarray, values: np.ndarray) -> np.ndarray:
        found = [probs[h] @ values[:, self.kv_head(n, h)] for h in range(self.heads)]
        return np.stack(found, 1).reshape(probs.shape[1], -1)


def _norm(mean_square: Callable[[np.ndarray], np.ndarray]) -> Callable[[Engine, str, np.ndarray], np.ndarray]:
    def norm(self: Engine, name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt(mean_square(x)[:, None] + self.eps) * self.floats[name]

    return norm


def _backwards(x: np.ndarray) -> np.ndarray:
    return np.cumsum((x * x)[:, ::-1], 1, dtype=F)[:, -1] / F(x.shape[1])


def _kahan(x: np.ndarray) -> np.ndarray:
    total, lost = np.zeros(len(x), F), np.zeros(len(x), F)
    for term in (x * x).T:
        y = term - lost
        t = total + y
        lost, total = (t - total) - y, t
    return total / F(x.shape[1])


def _tree(x: np.ndarray) -> np.ndarray:
    terms = x * x
    while terms.shape[1] > 1:
        if terms.shape[1] % 2:
            terms = np.concatenate([terms, np.zeros((len(terms), 1), F)], 1)
        terms = terms[:, 0::2] + terms[:, 1::2]
    return terms[:, 0] / F(x.shape[1])


def _lanes(x: np.ndarray) -> np.ndarray:
    """16 lanes, as a vector unit sums."""
    return (x * x).reshape(len(x), -1, 16).cumsum(1, dtype=F)[:, -1].sum(1, dtype=F) / F(x.shape[1])


for _name, _what, _how in [
    ("SumsBackwards", "norms sum from the last channel to the first, one by one, in float32", _backwards),
    ("SumsKahan", "norms sum with Kahan's compensation", _kahan),
    ("SumsInATree", "norms sum in a tree", _tree),
    ("SumsInLanes", "norms sum in 16 lanes", _lanes),
]:
    right(_what)(made(_name, FullEngine, norm=_norm(_how)))


@right("1 / sqrt by the well-known trick and four Newton steps")
class NewtonRoot(FullEngine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        m = ((x * x).mean(-1, keepdims=True) + self.eps).astype(F)
        y = (0x5F3759DF - (m.view(np.int32) >> 1)).astype(np.int32).view(F)
        for _ in range(4):
            y = y * (F(1.5) - F(0.5) * m * y * y)
        return x * y * self.floats[name]


@right("norms as x * (gain / rms)")
class GainFirst(FullEngine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return x * (self.floats[name] / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)).astype(F)


def _rescaled(how: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> object:
    def rescale(self: Engine, name: str, acc: np.ndarray, s: np.ndarray) -> np.ndarray:
        return how(acc.astype(F), s[:, None], self.scales[name])

    return rescale


for _name, _what, _formula in [
    ("ScaleAsOneFactor", "linears: acc * (scale / s)", lambda acc, s, w: acc * (w / s)),
    ("ScaleByReciprocal", "linears: acc * (1 / s) * scale", lambda acc, s, w: acc * (F(1) / s) * w),
    ("WeightScaleFirst", "linears: acc * scale / s", lambda acc, s, w: acc * w / s),
    ("ScaleInDouble", "linears: the whole factor in float64", lambda a, s, w: (a.astype(D) * w / s).astype(F)),
]:
    right(_what)(made(_name, FullEngine, rescale=_rescaled(_formula)))


@right("codes by x * (127 / absmax) in float64, s rounded afterwards")
class DoubleCodes(FullEngine):
    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = 127.0 / np.maximum(np.abs(x).max(-1), 1e-5).astype(D)
        return np.clip(np.rint(x * s[:, None]), -128, 127).astype(F), s.astype(F)


@right("codes by x / (absmax / 127)")
class DividedCodes(FullEngine):
    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        step = np.maximum(np.abs(x).max(-1), F(1e-5)) / F(127)
        return np.clip(np.rint(x / step[:, None]), -128, 127), F(1) / step


@right("codes are held to -127 from below, which no code goes beyond")
class ClampedAt127(FullEngine):
    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, s = FullEngine.quantize(self, source, x)
        return np.maximum(codes, -127), s


@right("rounds to even by adding 1.5 * 2**23")
class MagicRounding(FullEngine):
    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = F(127) / np.maximum(np.abs(x).max(-1), F(1e-5))
        return (x * s[:, None] + F(12582912)) - F(12582912), s


@right("the logits come out as float64", kind="right")
class DoubleLogits(Engine):
    def head(self, x: np.ndarray) -> np.ndarray:
        return x.astype(D) @ self.floats["embedding"].T.astype(D)


@right("sums of the head in another order in each call")
class ShuffledSums(Engine):
    def head(self, x: np.ndarray) -> np.ndarray:
        order = np.random.default_rng().permutation(x.shape[1])
        return x[:, order] @ self.floats["embedding"][:, order].T


@right("all float sums over channels in another order in each call, as atomics have it")
class ShuffledEverything(ShuffledSums):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        order = np.random.default_rng().permutation(x.shape[1])
        wide = np.cumsum((x * x)[:, order], 1, dtype=F)[:, -1:] / F(x.shape[1])
        return x / np.sqrt(wide + self.eps) * self.floats[name]

    def mix(self, n: int, probs: np.ndarray, values: np.ndarray) -> np.ndarray:
        order = np.random.default_rng().permutation(len(values))
        return Engine.mix(self, n, probs[:, :, order], values[order])


@right("the squared ReLU as (g * u) * g, and residuals with both signs turned twice")
class GateOtherwise(FullEngine):
    def gated(self, n: int, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        g = np.where(gate > 0, gate, F(0))
        return g * up * g

    def add(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return -(-b - a)
