"""Roundings that the golden arithmetic does not have, undeclared."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import faulty, made

KIND = "precision"
Quantiser = Callable[[Engine, str, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(F)


def _rounding(how: Callable[[np.ndarray], np.ndarray], largest: float = 127) -> Quantiser:
    def quantize(self: Engine, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = F(largest) / np.maximum(np.abs(x).max(-1), F(1e-5))
        return np.clip(how(x * s[:, None]), -128, 127), s

    return quantize


def _away(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.floor(np.abs(x) + F(0.5))


def _up(x: np.ndarray) -> np.ndarray:
    return np.floor(x + F(0.5))


QUANTISERS: list[tuple[str, str, Quantiser]] = [
    ("Truncated", "codes are truncated", _rounding(np.trunc)),
    ("Floored", "codes are rounded down", _rounding(np.floor)),
    ("ScaleOf128", "s = 128 / absmax", _rounding(np.rint, 128)),
    ("ScaleOf126", "s = 126 / absmax", _rounding(np.rint, 126)),
    ("SevenBits", "codes of seven bits: even ones only", _rounding(lambda x: 2 * np.rint(x / 2))),
    ("NoRounding", "activations are not quantised", _rounding(lambda x: x)),
]
for _name, _what, _quantize in QUANTISERS:
    faulty(KIND, _what)(made(_name, Engine, quantize=_quantize))
for _name, _what, _quantize in [
    ("HalfAwayShown", "ties of codes go away from zero, with operations", _rounding(_away)),
    ("HalfUpShown", "ties of codes go up, with operations", _rounding(_up)),
]:
    faulty(KIND, _what)(made(_name, FullEngine, quantize=_quantize))
faulty(
    KIND,
    "ties of codes go away from zero, logits alone",
    unseen="an exact tie inside a text cannot be told from float noise that carries a value across it, which right "
    "engines have and the judge follows; without operations no activations can be put in front of the quantiser",
)(made("HalfAway", Engine, quantize=_rounding(_away)))


@faulty(KIND, "RoPE's sines and cosines are kept in bfloat16")
class RopeTablesBf16(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angle = (positions[:, None, None] * self.frequencies()).astype(F)
        sin, cos = _bf16(np.sin(angle)), _bf16(np.cos(angle))
        a, b = x[..., : self.d // 2], x[..., self.d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@faulty(KIND, "keys and values are kept in float16, undeclared")
class CacheF16(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Engine.cached(self, n, k.astype(np.float16).astype(F), v.astype(np.float16).astype(F))


@faulty(KIND, "values alone are kept in bfloat16, undeclared")
class ValuesBf16(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Engine.cached(self, n, k, _bf16(v))


@faulty(KIND, "the residual stream is bfloat16, undeclared")
class ResidualBf16(Engine):
    def add(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return _bf16(Engine.add(self, name, a, b))


@faulty(KIND, "the squared ReLU is rounded to bfloat16, undeclared")
class GateBf16(Engine):
    def gated(self, n: int, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return _bf16(np.maximum(gate, 0) ** 2) * up


@faulty(KIND, "the head is kept in 8 bits with a scale for 32 weights, undeclared")
class HeadQ8(Engine):
    def prepare(self) -> None:
        e = self.floats["embedding"]
        blocks = e.reshape(len(e), -1, 32)
        s = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float16).astype(F)
        self.floats["lm_head"] = (np.rint(blocks / np.where(s == 0, 1, s)) * s).reshape(e.shape)


@faulty(KIND, "weight scales are rounded to 7 bits")
class CoarseScales(Engine):
    def prepare(self) -> None:
        for name, scale in self.scales.items():
            mantissa, exponent = np.frexp(scale)
            self.scales[name] = F(np.ldexp(np.rint(mantissa * 64) / 64, exponent))


@faulty(KIND, "exp is a polynomial of the third degree")
class CoarseExp(Engine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        t = (scores - scores.max(-1, keepdims=True)) * np.log2(np.e)
        whole = np.floor(np.maximum(t, -100))
        f = np.maximum(t, -100) - whole
        powers = np.ldexp(1 + f * (0.69583 + f * (0.22606 + f * 0.07802)), whole.astype(int))
        powers = np.where(np.isinf(scores), 0, powers)
        return powers / powers.sum(-1, keepdims=True)


@faulty(KIND, "1 / sqrt of the norms by the well-known trick with one Newton step")
class FastInverseRoot(Engine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        m = ((x * x).mean(-1, keepdims=True) + self.eps).astype(F)
        y = (0x5F3759DF - (m.view(np.int32) >> 1)).astype(np.int32).view(F)
        y = y * (F(1.5) - F(0.5) * m * y * y)
        return x * y * self.floats[name]


@faulty(KIND, "an absmax over the layer's whole input, kept from the first token on")
class StaticScale(Engine):
    def prepare(self) -> None:
        self.largest: dict[str, np.ndarray] = {}

    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = self.largest.setdefault(source, F(127) / np.maximum(np.abs(x[:1]).max(-1), F(1e-5)))
        s = np.repeat(s, len(x))
        return np.clip(np.rint(x * s[:, None]), -128, 127), s
