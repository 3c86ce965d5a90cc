"""How much wider the tolerances of operations are if an engine declares another precision than float32.

u is half the spacing at 1 of the declared number type. An operation in that type makes a few roundings of size u:
ROUNDINGS for its output, for a score, for the products of a sum. The golden values are rounded by the policy too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.config import ModelConfig
from tritgold.graph import Operation
from tritgold.weights import ModelWeights
from tritgold_conformance.comparing.compare import FLUSHED, Bound, Outcome, TieAwareCodes, Tolerance, Ulp
from tritgold_conformance.policies import Policy
from tritgold_conformance.policies.heads import head_bound

ROUNDINGS = 4.0
SMALLEST_F16 = 2.0**-24
Array = np.ndarray
Inputs = dict[str, Array]


@dataclass(frozen=True)
class Wider:
    """The tolerance ``base``, plus ``relative`` x |golden value| plus ``absolute``; arrays broadcast."""

    base: Tolerance
    relative: Array | float
    absolute: Array | float
    why: str
    within: ClassVar[Outcome] = "within"

    def excess(self, golden: Array, engine: Array) -> Array:
        """|difference| / allowed."""
        limit = self.relative * np.abs(golden.astype(np.float64)) + self.absolute
        if isinstance(self.base, Bound):
            limit = limit + self.base.limit
        elif isinstance(self.base, Ulp):
            limit = limit + self.base.n * np.spacing(np.abs(golden.astype(np.float32))).astype(np.float64)
        return np.abs(engine.astype(np.float64) - golden) / np.maximum(limit, FLUSHED)


@dataclass(frozen=True)
class NearCodes:
    """Codes of values that were rounded before: within half a code of x * s, plus ``relative`` x |x * s|."""

    scaled: Array
    relative: float
    why: str
    within: ClassVar[Outcome] = "ties"  # a rounding carried x * s to the other code

    def excess(self, golden: Array, engine: Array) -> Array:
        """0 where equal, otherwise the distance from x * s divided by the allowed distance."""
        off = np.abs(engine.astype(np.float64) - self.scaled)
        limit = 0.5 + self.relative * np.maximum(np.abs(self.scaled), 1.0)
        return np.where(engine == golden, 0.0, off / limit)


def widened(
    allowed: dict[str, Tolerance],
    operation: Operation,
    inputs: Inputs,
    config: ModelConfig,
    weights: ModelWeights,
    policy: Policy,
) -> dict[str, Tolerance]:
    """The tolerances of float32, by output role, widened for the policy; unchanged if it does not need more."""
    u, why = ROUNDINGS * policy.unit, f"policy {policy.name}"
    found = dict(allowed)
    if u and operation.kind == "quantize":
        codes = allowed["codes"]
        assert isinstance(codes, TieAwareCodes)
        found["codes"] = NearCodes(codes.scaled, u, f"{why}: x, s and x * s carry roundings")
        found["scale"] = Wider(allowed["scale"], u, 0.0, f"{why}: {ROUNDINGS:g} roundings")
        return found
    more = {**_attention(operation, inputs, config, policy), **_head(operation, inputs, weights, policy)}
    for role, tolerance in allowed.items():
        relative, absolute = more.get(role, (0.0, 0.0))
        if role != "acc" and (u or role in more):
            of_kind = _OF_KIND.get(operation.kind)
            absolute = absolute + (u * of_kind(inputs, config)[role] if of_kind and u else 0.0)
            found[role] = Wider(tolerance, relative + u, absolute, f"{why}, and {tolerance.why}")
    return found


def _pairs(inputs: Inputs, config: ModelConfig) -> Inputs:
    """|a| + |b| for each pair (a, b) that RoPE rotates, float64 [tokens, heads, head_dim], for q and k."""
    half = config.head_dim // 2

    def pair(x: Array) -> Array:
        heads = np.abs(x.reshape(len(x), -1, config.head_dim)).astype(np.float64)
        both = heads[..., :half] + heads[..., half:]
        return np.concatenate([both, both], axis=2)

    return {role: pair(inputs[role]) for role in "qk"}


def _mixed(inputs: Inputs, config: ModelConfig) -> Inputs:
    """Sums of |probability x value|, float64 [tokens, heads * head_dim]."""
    probs, v = inputs["probs"].astype(np.float64), np.abs(inputs["v"]).astype(np.float64)
    values = np.repeat(v.reshape(len(v), config.kv_heads, config.head_dim), config.heads // config.kv_heads, axis=1)
    return {"x": np.einsum("hts,shd->thd", probs, values).reshape(probs.shape[1], -1)}


def _gated(inputs: Inputs, config: ModelConfig) -> Inputs:
    """For SiLU, |gate x up x gate|: a rounding of the gate also changes the exponent; otherwise 0."""
    gate, up = (inputs[role].astype(np.float64) for role in ("gate", "up"))
    return {"x": np.abs(gate * up) * np.abs(gate) if config.activation == "silu" else np.zeros(gate.shape)}


_OF_KIND: dict[str, Callable[[Inputs, ModelConfig], Inputs]] = {
    "rope": _pairs, "mix": _mixed, "ffn_activation": _gated,
}  # fmt: skip


def _attention(
    operation: Operation, inputs: Inputs, config: ModelConfig, policy: Policy
) -> dict[str, tuple[Array | float, Array | float]]:
    """(relative, absolute) by role for softmax and mix, in addition to u."""
    cache = policy.of("cache")
    unit, step = (cache.unit, cache.step) if cache else (0.0, 0.0)
    if operation.kind == "softmax" and (policy.unit or cache):
        q, k = (np.abs(inputs[role]).astype(np.float64) for role in "qk")
        q = q * config.query_scale
        largest = float(np.max(q, initial=0.0)) * float(np.max(k, initial=0.0)) * float(np.sqrt(config.head_dim))
        scores = np.einsum(
            "thd,shd->hts",
            config.query_scale * inputs["q"].astype(np.float64),
            np.repeat(inputs["k"], q.shape[1] // k.shape[1], axis=1),
        ) / np.sqrt(config.head_dim)
        exponent = ROUNDINGS * max(policy.unit, unit) * (1 + np.abs(scores).max(axis=2, keepdims=True))
        # One stored number that is at a rounding tie of its scheme may become the next one.
        exponent = exponent + 2 * step * largest / config.head_dim
        return {"x": (np.expm1(exponent), SMALLEST_F16 if max(policy.unit, unit) else 0.0)}
    if operation.kind == "mix" and (unit or step):
        probs, v = inputs["probs"].astype(np.float64), np.abs(inputs["v"]).astype(np.float64)
        absolute: Array | float = 2 * step * float(np.max(probs, initial=0.0)) * float(np.max(v, initial=0.0))
        if unit:
            absolute = unit * (ROUNDINGS + 2 * np.sqrt(probs.shape[2])) * _mixed(inputs, config)["x"]
        return {"x": (0.0, absolute)}
    return {}


def _head(
    operation: Operation, inputs: Inputs, weights: ModelWeights, policy: Policy
) -> dict[str, tuple[Array | float, Array | float]]:
    """(relative, absolute) of the logits: for their own number type, and for a head of quantised blocks."""
    head = policy.of("head")
    if operation.kind != "lm_head" or not (head or policy.logits):
        return {}
    absolute = head_bound(inputs["x"], weights.head_or_embedding, head.head) if head else 0.0
    return {"x": (policy.logits, absolute)}
