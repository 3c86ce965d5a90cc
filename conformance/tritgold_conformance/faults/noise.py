"""Float32 noise, which is not a fault: right engines with other roundings, and so with other broken ties.

``noisy`` changes every output at random and can be combined with any fault. The other KINDS are arithmetics of real
engines: sums in float32 and in another order, norms in float32, scales applied in another order.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.config import ScaleRule
from tritgold.counter_random import random_bits
from tritgold.graph import Kind, operations
from tritgold.ternary import DenseMatrix
from tritgold.trace_names import TraceName
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.mutate import altered, with_arithmetic

ONE_ROUNDING, SUMS = 6e-8, 3e-7  # relative: of single operations; of norms, softmax, the mix and the head
_SUMMED: tuple[Kind, ...] = ("rms_norm", "softmax", "mix", "lm_head")


def noisy(mutant: Mutant, seed: int, times: float = 1.0) -> Mutant:
    """The mutant with every float output changed at random by the noise of float32, differently for each seed.

    times: factor on the noise. Integers are not changed; codes follow from their noisy inputs.
    """
    calls, kinds = [0], {name: o.kind for o in operations(mutant.config) for name in o.writes.values()}

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        kind, integers = kinds.get(name), TraceName.of(name).role in ("codes", "acc")
        if value.dtype != np.float32 or integers or kind == "embedding":
            return None
        calls[0] += 1
        index = np.arange(1, value.size + 1, dtype=np.uint64) + np.uint64(calls[0] << 32)
        bits = random_bits(seed, index) >> np.uint64(40)
        uniform = bits.astype(np.float64) * 2.0**-23 - 1.0
        size = times * (SUMS if kind in _SUMMED else ONE_ROUNDING)
        with np.errstate(invalid="ignore", over="ignore"):
            return (value * (1 + size * uniform.reshape(value.shape))).astype(np.float32)

    return _named(altered(mutant, alter), seed)


def float32_norms(mutant: Mutant, seed: int) -> Mutant:
    """Norms in float32 instead of float64: in transformers' order, or with gain and root as one factor."""
    return _named(with_arithmetic(mutant, rms_norm=_Norm(None, seed % 2 == 0)), seed)


def shuffled_sums(mutant: Mutant, seed: int) -> Mutant:
    """Every float sum in float32 and in a random order: norms, scores, softmax, the mix, the head."""
    order = _Order(seed)

    def softmax_weights(
        q: np.ndarray, k: np.ndarray, start: int, block: int = 1, window: int | None = None
    ) -> np.ndarray:
        tokens, heads, head_dim = q.shape
        keys, kv_heads = k.shape[:2]
        channels, places = order(head_dim), order(keys)
        q, k = q[..., channels], np.repeat(k[..., channels], heads // kv_heads, axis=1)
        scores = np.matmul(q.transpose(1, 0, 2), k.transpose(1, 2, 0)) * np.float32(1 / np.sqrt(head_dim))
        query = start + np.arange(tokens)[:, None]
        hidden = np.arange(keys) // block > query // block
        if window is not None:
            hidden |= np.arange(keys) <= query - window
        scores = np.where(hidden, np.float32(-np.inf), scores)
        powers = np.exp(scores - scores.max(axis=2, keepdims=True))
        return powers / powers[..., places].sum(axis=2, keepdims=True, dtype=np.float32)

    def mix_values(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        heads, tokens, keys = weights.shape
        places = order(keys)
        values = np.repeat(v, heads // v.shape[1], axis=1).transpose(1, 0, 2)
        mixed = np.matmul(weights[..., places], np.ascontiguousarray(values[:, places]))
        return np.ascontiguousarray(mixed.transpose(1, 0, 2)).reshape(tokens, -1)

    def logits(x: np.ndarray, head: DenseMatrix) -> np.ndarray:
        channels = order(x.shape[1])
        return np.ascontiguousarray(x[:, channels]) @ np.ascontiguousarray(head.rows(slice(None))[:, channels]).T

    functions: dict[str, Any] = {"softmax_weights": softmax_weights, "mix_values": mix_values, "logits": logits}
    return _named(with_arithmetic(mutant, rms_norm=_Norm(order, seed % 2 == 0), **functions), seed)


def scales_otherwise(mutant: Mutant, seed: int) -> Mutant:
    """Scales in another order, as in some engines: both as one factor, the weight first, or reciprocals."""

    def apply_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: ScaleRule) -> np.ndarray:
        w = weight_scale if rule == "multiply" else (np.float32(1) / weight_scale).astype(np.float32)
        sums = acc.astype(np.float32)
        if seed % 3 == 0:
            return (sums * (w / scale)[:, None]).astype(np.float32)
        if seed % 3 == 1:
            return (sums * w / scale[:, None]).astype(np.float32)
        return (sums * (np.float32(1) / scale)[:, None] * w).astype(np.float32)

    return _named(with_arithmetic(mutant, apply_scales=apply_scales), seed)


def float32_everywhere(mutant: Mutant, seed: int) -> Mutant:
    """Sums, norms and scales together. Without ``noisy``, which would count the same roundings twice."""
    return scales_otherwise(shuffled_sums(mutant, seed), seed)


# Right engines. All but ``noisy`` need the golden model: they would replace the functions of a faulty one.
KINDS: dict[str, Callable[[Mutant, int], Mutant]] = {
    "roundings": noisy,
    "float32 norms": float32_norms,
    "shuffled sums": shuffled_sums,
    "scales otherwise": scales_otherwise,
    "float32 everywhere": float32_everywhere,
}


class _Order:
    """A fixed permutation for each length, from a hash of the seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._known = seed, dict[int, np.ndarray]()

    def __call__(self, length: int) -> np.ndarray:
        if length not in self._known:
            lots = random_bits(self._seed, np.arange(1, length + 1, dtype=np.uint64) + np.uint64(length << 20))
            self._known[length] = np.argsort(lots, kind="stable")
        return self._known[length]


class _Norm:
    """RMSNorm in float32. order: of the sum. gain_last: x / rms is rounded before it meets the gain."""

    def __init__(self, order: _Order | None, gain_last: bool) -> None:
        self._order, self._gain_last = order, gain_last

    def __call__(self, x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        squares = x * x if self._order is None else (x * x)[:, self._order(x.shape[1])]
        root = np.float32(1) / np.sqrt(squares.mean(axis=1, keepdims=True, dtype=np.float32) + np.float32(eps))
        return x * root * gain if self._gain_last else x * (root * gain)


def _named(mutant: Mutant, seed: int) -> Mutant:
    return replace(mutant, names=(*mutant.names, f"noise {seed}"))
