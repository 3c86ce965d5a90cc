"""The tolerance of each operation on golden inputs, with the reason for its width.

u = 2**-24 is half the spacing of float32 at 1. An engine in ordinary float32 makes, per operation, a few
roundings of u each, and a sum of n terms in some order. A sum's error is bounded by n u sum|terms|; rounding
errors have random signs, so that in practice sums stay within 8 + 2 sqrt(n) of them, while a missing
element, an eps of another size or a scale off by a percent is outside. The tests try both sides.
"""

import numpy as np

from tritgold.config import Activation, ModelConfig, ScaleRule
from tritgold.graph import Operation
from tritgold.layers.bit_linear import accumulate, apply_scales
from tritgold.layers.scaled import scaled
from tritgold.rope_scaling import RopeScaling
from tritgold.ternary import LinearWeight
from tritgold.weights import ModelWeights
from tritgold_conformance.comparing.compare import Bound, Exact, TieAwareCodes, Tolerance, Ulp
from tritgold_conformance.comparing.policy_tolerance import widened
from tritgold_conformance.policies import FLOAT32, Policy

U = 2.0**-24
TIE_DISTANCE = 4 * 127 * U  # in code units: x * s is at most 127 and has up to four roundings


def sum_roundings(n: int) -> float:
    """Roundings, in units of u, that a float32 sum of n terms is allowed."""
    return 8 + 2 * float(np.sqrt(n))


def tolerances(
    operation: Operation,
    inputs: dict[str, np.ndarray],
    config: ModelConfig,
    weights: ModelWeights,
    policy: Policy = FLOAT32,
) -> dict[str, Tolerance]:
    """Output role -> tolerance, for an operation on these golden inputs."""
    allowed = _float32(operation, inputs, config, weights)
    return allowed if policy == FLOAT32 else widened(allowed, operation, inputs, config, weights, policy)


def _float32(
    operation: Operation, inputs: dict[str, np.ndarray], config: ModelConfig, weights: ModelWeights
) -> dict[str, Tolerance]:
    match operation.kind:
        case "embedding":
            if config.embedding_scale != 1:
                return {"x": Ulp(1, "a look-up and one float32 product")}
            return {"x": Exact("a look-up: widening bf16 to float32 is exact")}
        case "rms_norm":
            of_heads = operation.at.what in ("q_norm", "k_norm")
            return {"x": norm_tolerance(config.head_dim if of_heads else inputs["x"].shape[-1])}
        case "quantize":
            return _quantize(inputs["x"])
        case "bit_linear":
            return {"acc": Exact(), "out": _linear(operation, inputs, config, weights)}
        case "rope":
            heads = {"q": config.heads, "k": config.kv_heads}
            shaped = {r: inputs[r].reshape(len(inputs[r]), n, config.head_dim) for r, n in heads.items()}
            positions = np.arange(len(inputs["q"]))
            theta, *scaling = config.rope_of(_layer(operation))
            return {r: rotation_tolerance(x, positions, theta, *scaling) for r, x in shaped.items()}
        case "softmax":
            q = scaled(inputs["q"], config.query_scale)
            return {"x": softmax_tolerance(q, inputs["k"], window=config.window_of(_layer(operation)))}
        case "mix":
            return {"x": mix_tolerance(inputs["probs"], inputs["v"].reshape(-1, config.kv_heads, config.head_dim))}
        case "ffn_activation":
            return {"x": activation_tolerance(inputs["gate"], inputs["up"], config.activation)}
        case "add":
            return {"x": _added(inputs["a"], inputs["b"], config.residual_scale)}
        case "lm_head":
            return {"x": _head(inputs["x"], weights, config.logit_divisor)}


def _layer(operation: Operation) -> int:
    assert operation.at.layer is not None
    return operation.at.layer


def _linear(
    operation: Operation, inputs: dict[str, np.ndarray], config: ModelConfig, weights: ModelWeights
) -> Tolerance:
    layer, name = weights.layers[_layer(operation)], operation.at.what
    bias = layer.bias(name)
    if bias is None:
        return Ulp(4, "acc, s and w meet in two or three float32 operations")
    tensor = layer.linear(name).ternary()
    sums = accumulate(inputs["codes"], tensor.trits)
    size = np.abs(apply_scales(sums, inputs["scale"], tensor.scale, config.scale_rule)).astype(np.float64)
    return Bound(8 * U * size + 2 * U * np.abs(bias), "acc, s and w in two or three operations, and the bias added")


def _added(stream: np.ndarray, branch: np.ndarray, factor: float) -> Tolerance:
    if factor == 1:
        return Ulp(1, "one float32 addition")
    size = np.abs(stream).astype(np.float64) + np.abs(branch).astype(np.float64) * factor
    return Bound(2 * U * size, "one float32 product and one addition")


def float_sum_tolerance(codes: np.ndarray, scale: np.ndarray, weight: LinearWeight, rule: ScaleRule) -> Tolerance:
    """The tolerance of a linear's output if the engine shows no integers, and may have summed scaled floats instead.

    codes int8 [tokens, in], scale float32 [tokens]. If the integers sum to 0, such a float sum is about 1e-8.
    """
    tensor = weight.ternary().with_scales_of_rows()
    sums = np.abs(codes.astype(np.float32)) @ np.abs(tensor.trits).astype(np.float32).T
    size = np.abs(apply_scales(sums.astype(np.int32), scale, tensor.scale, rule)).astype(np.float64)
    limit = sum_roundings(codes.shape[1]) * U * size
    return Bound(limit, "integers are not shown: one float32 sum of scaled codes and scaled weights")


def norm_tolerance(width: int) -> Tolerance:
    """The tolerance of RMSNorm over ``width`` channels."""
    # Squares are positive and the root halves their sum's error: sequential float32 stays below a third of this,
    # while at width 2560 an eps of 1e-6 instead of 1e-5 changes a token of unit variance by 37 units.
    return Ulp(4 + float(np.sqrt(width)) / 2, "a sum of squares, a root that halves its error, two products")


def _quantize(x: np.ndarray) -> dict[str, Tolerance]:
    absmax = np.maximum(np.abs(x).max(axis=1, keepdims=True), np.float32(1e-5)).astype(np.float64)
    why = "codes may differ by one within four roundings of a tie: 127 / absmax, x * s, or x / (absmax / 127)"
    return {
        "codes": TieAwareCodes(x.astype(np.float64) * (127 / absmax), TIE_DISTANCE, why),
        "scale": Ulp(2, "one division, or the reciprocal of one"),
    }


def rotation_tolerance(
    x: np.ndarray, positions: np.ndarray, theta: float, scaling: RopeScaling | None = None
) -> Tolerance:
    """The tolerance of RoPE on x [tokens, heads, head_dim] at these positions [tokens]."""
    heads, half = np.abs(x).astype(np.float64), x.shape[2] // 2
    pair = heads[..., :half] + heads[..., half:]
    frequency = theta ** (-2.0 * np.arange(half) / x.shape[2])
    if scaling is not None:
        frequency, pair = frequency / np.array(scaling.divisors), pair * scaling.magnitude
    angle = positions[:, None, None] * frequency
    # A divisor is one more rounding of the frequency, a magnitude one of sine and cosine.
    limit = (4 + 2 * angle if scaling is None else 6 + 4 * angle) * U * pair
    return Bound(np.concatenate([limit, limit], axis=2), "float32 angles: position * frequency carries two roundings")


def softmax_tolerance(q: np.ndarray, k: np.ndarray, start: int = 0, window: int | None = None) -> Tolerance:
    """The tolerance of the softmax over the keys that each token sees. start: position of the first token."""
    tokens, heads, head_dim = q.shape
    group = heads // k.shape[1]
    by_head = np.repeat(np.abs(k), group, axis=1).astype(np.float64)
    # |score| <= sum |q_i k_i| / sqrt(d). An error of the score, an exponent, is a relative error of e^score.
    magnitude = np.einsum("thd,shd->hts", np.abs(q).astype(np.float64), by_head) / np.sqrt(head_dim)
    causal = np.tri(tokens, k.shape[0], start)
    if window is not None:
        causal -= np.tri(tokens, k.shape[0], start - window)
    exponent = (sum_roundings(head_dim) * U * magnitude * causal).max(axis=2, keepdims=True)
    scores = np.einsum("thd,shd->hts", q.astype(np.float64), np.repeat(k, group, axis=1)) / np.sqrt(head_dim)
    scores = np.where(causal > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    limit = weights * (2 * exponent + sum_roundings(k.shape[0]) * U)
    return Bound(limit, "the score's rounding moves the exponent; then one sum over the keys")


def mix_tolerance(probs: np.ndarray, v: np.ndarray) -> Tolerance:
    """The tolerance of the sum of values [keys, kv_heads, head_dim] weighted by probs [heads, tokens, keys]."""
    heads, tokens, keys = probs.shape
    by_head = np.repeat(np.abs(v).astype(np.float64), heads // v.shape[1], axis=1)
    magnitude = np.einsum("hts,shd->thd", probs.astype(np.float64), by_head).reshape(tokens, -1)
    return Bound(sum_roundings(keys) * U * magnitude, "one sum over the keys of probability * value")


def activation_tolerance(gate: np.ndarray, up: np.ndarray, activation: Activation) -> Tolerance:
    """The tolerance of the gate's activation function times up."""
    if activation == "relu2":
        return Ulp(4, "two products")
    g = gate.astype(np.float64)
    if activation == "gelu_tanh":
        size = np.abs(g * up)
        return Bound((16 + np.abs(g)) * U * size, "1 + tanh, which is about 2^-24 wrong where it cancels")
    with np.errstate(over="ignore"):
        value = np.abs(g / (1 + np.exp(-g)) * up)
    # Below -88 e^-gate overflows float32, and gate / (1 + e^-gate) becomes -0: values of that size are not compared.
    limit = np.where(g < -88, 2 * value, (8 + np.abs(g)) * U * value)
    return Bound(limit, "e^-gate: a rounding of gate is a relative error of gate * u; it overflows below -88")


def _head(x: np.ndarray, weights: ModelWeights, divisor: float) -> Tolerance:
    head = weights.head_or_embedding
    size = np.abs(x).astype(np.float32)
    rows = range(0, head.shape[0], 4096)
    magnitude = np.concatenate([size @ np.abs(head.rows(slice(r, r + 4096))).T for r in rows], axis=1)
    limit = (sum_roundings(head.shape[1]) + (divisor != 1)) * U * magnitude.astype(np.float64) / divisor
    return Bound(limit, "one sum over hidden")
