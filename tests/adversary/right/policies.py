"""Right engines of a precision that they declare: each conforms to its policy, and to no stricter one."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from base_engine import Engine, F
from full_engine import Completing, FullEngine, Operations, Traced
from registry import made, right

Store = Callable[[np.ndarray], np.ndarray]


def as_type(dtype: type) -> Store:
    def store(x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return x.astype(dtype).astype(F)

    return store


bf16, f16 = as_type(ml_dtypes.bfloat16), as_type(np.float16)


def int8_rows(x: np.ndarray) -> np.ndarray:
    """A scale a token and head."""
    step = np.abs(x).max(-1, keepdims=True) / F(127)
    return np.clip(np.rint(np.divide(x, step, out=np.zeros_like(x), where=step > 0)), -127, 127) * step


def q8_0(x: np.ndarray) -> np.ndarray:
    """Blocks of 32 with a float16 scale; codes by the float32 one."""
    blocks = x.reshape(-1, 32)
    step = np.abs(blocks).max(1, keepdims=True) / F(127)
    codes = np.rint(np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0))
    return (codes * step.astype(np.float16).astype(F)).reshape(x.shape)


class Cached(FullEngine):
    """Keys and values are kept as `store` leaves them, and attention reads nothing else."""

    store: Store

    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Engine.cached(self, n, type(self).store(k), type(self).store(v))

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        kind = name.rsplit(".", 1)[-1]
        role = {"probs": "k", "attn_mix": "v"}.get(kind)
        if role:
            shape = inputs[role].shape
            kept = type(self).store(inputs[role].reshape(len(inputs[role]), -1, self.d)).reshape(shape)
            inputs = {**inputs, role: kept}
        return FullEngine.operation(self, name, inputs)


for _name, _policy, _store in [
    ("DeclaredCacheF16", "kv-f16", f16),
    ("DeclaredCacheBf16", "kv-bf16", bf16),
    ("DeclaredCacheE4m3", "kv-fp8_e4m3", as_type(ml_dtypes.float8_e4m3fn)),
    ("DeclaredCacheE5m2", "kv-fp8_e5m2", as_type(ml_dtypes.float8_e5m2)),
    ("DeclaredCacheInt8", "kv-int8", int8_rows),
    ("DeclaredCacheQ80", "kv-q8_0", q8_0),
]:
    right(f"declares {_policy}")(made(_name, Cached, store=staticmethod(_store), policy=_policy))


class Rounding(Operations, Traced, Completing):
    """Every output is rounded, and what the quantiser multiplies with."""

    store: Store

    def prepare(self) -> None:
        for name, piece in [("norm", self.norm), ("rotate", self.rotate), ("probabilities", self.probabilities),
                            ("mix", self.mix), ("gated", self.gated), ("head", self.head), ("add", self.add),
                            ("rescale", self.rescale), ("embed", self.embed)]:  # fmt: skip
            setattr(self, name, self.rounded(piece))

    def rounded(self, piece: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        return lambda *inputs: type(self).store(np.asarray(piece(*inputs), F))

    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        store = type(self).store
        s = store(F(127) / np.maximum(np.abs(x).max(-1), F(1e-5)))
        return np.clip(np.rint(store(x * s[:, None])), -128, 127), s


class RoundingFloatCodes(Rounding):
    """The quantiser is float32, as transformers' online one."""

    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Engine.quantize(self, source, x)


class RoundingStream(Engine):
    """The residual stream alone is narrow; everything inside a layer is float32."""

    store: Store

    def add(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return type(self).store(a + b)


class RoundingScores(Rounding):
    """Scores and weights of attention are rounded between its products, as eager attention does."""

    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        store = type(self).store
        return store(store((q @ k.T).astype(F)) / F(np.sqrt(self.d)))


for _kind, _store in [("bf16", bf16), ("f16", f16)]:
    for _base, _what in [
        (Rounding, "everything rounded, x * s too"),
        (RoundingFloatCodes, "everything rounded, codes made in float32"),
        (RoundingStream, "only the residual stream rounded"),
        (RoundingScores, "scores rounded as well"),
    ]:
        _name = f"{_base.__name__}{_kind.title()}"
        right(f"declares {_kind}: {_what}")(made(_name, _base, store=staticmethod(_store), policy=_kind))


@right("declares weights-only: activations are not quantised")
class WeightsOnly(FullEngine):
    policy = "weights-only"

    def linears(self, source: str, x: np.ndarray, names: list[str]) -> list[np.ndarray]:
        return [self.note(f"{name}.out", (x @ self.trits[name].T).astype(F) * self.scales[name]) for name in names]

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        if name in self.trits or name.endswith("_in"):
            return None
        return FullEngine.operation(self, name, inputs)


class Heads(FullEngine):
    """Weights of the head by blocks, and what they are multiplied with in int8 by blocks."""

    weights: tuple[int, int]
    inputs: int

    def blocked(self, x: np.ndarray, block: int, steps: int) -> np.ndarray:
        parts = x.reshape(len(x), -1, block)
        step = np.abs(parts).max(-1, keepdims=True) / F(steps)
        return (np.rint(np.divide(parts, step, out=np.zeros_like(parts), where=step > 0)) * step).reshape(x.shape)

    def prepare(self) -> None:
        self.rows = self.blocked(self.floats["embedding"], *type(self).weights)

    def head(self, x: np.ndarray) -> np.ndarray:
        return self.blocked(x, min(type(self).inputs, x.shape[1]), 127) @ self.rows.T


class HeadsWeights(Heads):
    """What they are multiplied with stays float32."""

    def head(self, x: np.ndarray) -> np.ndarray:
        return x @ self.rows.T


for _name, _policy, _base, _weights, _inputs in [
    ("HeadQ80", "head-q8_0", Heads, (32, 127), 32),
    ("HeadQ6K", "head-q6_k", Heads, (16, 31), 256),
    ("HeadQ80Weights", "head-q8_0", HeadsWeights, (32, 127), 0),
    ("HeadQ6KWeights", "head-q6_k", HeadsWeights, (16, 31), 0),
]:
    right(f"declares {_policy}")(made(_name, _base, weights=_weights, inputs=_inputs, policy=_policy))


def _handing_out(dtype: type) -> Callable[[Engine, np.ndarray], np.ndarray]:
    def head(self: Engine, x: np.ndarray) -> np.ndarray:
        return FullEngine.head(self, x).astype(dtype)

    return head


for _name, _policy, _dtype in [
    ("DeclaredLogitsF16", "logits-f16", np.float16),
    ("DeclaredLogitsBf16", "logits-bf16", ml_dtypes.bfloat16),
]:
    right(f"declares {_policy}")(made(_name, FullEngine, head=_handing_out(_dtype), policy=_policy))


@right("declares kv-f16+logits-bf16")
class CacheAndLogits(Cached):
    policy, store = "logits-bf16+kv-f16", staticmethod(f16)

    def head(self, x: np.ndarray) -> np.ndarray:
        return Cached.head(self, x).astype(ml_dtypes.bfloat16)


@right("declares kv-f16+head-q6_k")
class CacheAndHead(Cached):
    policy, store, weights, inputs = "kv-f16+head-q6_k", staticmethod(f16), (16, 31), 256
    blocked, prepare, head = Heads.blocked, Heads.prepare, Heads.head
