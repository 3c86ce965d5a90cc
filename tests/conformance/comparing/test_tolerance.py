"""Each tolerance from both sides: ordinary float32 in several orders stays within, the nearest fault is outside."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritgold.config import ModelConfig
from tritgold.graph import Operation, operations
from tritgold.layers.attention import mix_values, softmax_weights
from tritgold.layers.feed_forward import gated_activation
from tritgold.layers.rms_norm import rms_norm
from tritgold.layers.rotary import rotate, rotation_table
from tritgold.quantize import absmax_int8
from tritgold_conformance.comparing.compare import compare
from tritgold_conformance.comparing.tolerance import tolerances

RNG = np.random.default_rng(0)
F = np.float32


def config(**fields: Any) -> ModelConfig:
    tiny = ModelConfig(
        vocab=50, hidden=64, inter=96, layers=1, heads=4, kv_heads=2, head_dim=16, context=64, norm_eps=1e-5,
        rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply",
    )  # fmt: skip
    return replace(tiny, **fields)


def operation(name: str) -> Operation:
    return next(o for o in operations(config()) if o.name == name)


def passes(
    name: str, role: str, golden: np.ndarray, engine: np.ndarray, c: ModelConfig | None = None, **inputs: Any
) -> bool:
    tolerance = tolerances(operation(name), inputs, c or config(), None)[role]  # type: ignore[arg-type]
    return compare(name, golden, engine, tolerance).passed


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F)


def sequential(terms: np.ndarray) -> np.ndarray:
    """Sum over the last axis, one float32 addition after the other: the noisiest ordinary order."""
    total = np.zeros(terms.shape[:-1], F)
    for i in range(terms.shape[-1]):
        total = total + terms[..., i]
    return total


ORDERS: list[Callable[[np.ndarray], np.ndarray]] = [
    sequential,
    lambda t: sequential(t[..., ::-1]),
    lambda t: t.sum(axis=-1, dtype=F),
]


@pytest.mark.parametrize("total", ORDERS)
@pytest.mark.parametrize("width", [8, 64, 2560])
def test_rms_norm_in_any_order_passes_and_another_eps_does_not(total: Callable[..., Any], width: int) -> None:
    x, gain = f32(6, width), f32(width)
    x /= np.sqrt((x**2).mean(axis=1, keepdims=True))
    golden = rms_norm(x, gain, 1e-5)
    honest = x * (F(1) / np.sqrt(total(x * x) / F(width) + F(1e-5)))[:, None] * gain
    assert passes("layers.0.attn_norm", "x", golden, honest, x=x)
    assert not passes("layers.0.attn_norm", "x", golden, rms_norm(x, gain, 1e-6), x=x)
    assert not passes("layers.0.attn_norm", "x", golden, rms_norm(x, gain + 1, 1e-5), x=x)


def test_quantisers_of_other_formulas_pass_and_other_roundings_do_not() -> None:
    x = f32(50, 640)
    golden, scale = absmax_int8(x)
    absmax = np.abs(x).max(axis=1, keepdims=True)
    for codes in (np.rint(x / (absmax / F(127))), np.rint(x * (F(127) / absmax)), np.rint(x / absmax * F(127))):
        assert passes("layers.0.attn_in", "codes", golden, codes.astype(np.int8), x=x)
    scaled = x * scale[:, None]
    for codes in (np.trunc(scaled), np.floor(scaled), np.ceil(scaled), np.rint(scaled) + 1):
        assert not passes("layers.0.attn_in", "codes", golden, np.clip(codes, -128, 127).astype(np.int8), x=x)
    assert passes("layers.0.attn_in", "scale", scale, (F(1) / (absmax[:, 0] / F(127))), x=x)
    assert not passes("layers.0.attn_in", "scale", scale, scale * F(1 + 1e-6), x=x)


def test_the_other_side_of_a_tie_passes_and_the_wrong_side_does_not() -> None:
    x = np.full((1, 640), 0.1, F)
    x[0, 0], x[0, 1], x[0, 2] = 127, np.nextafter(F(2.5), F(0)), np.nextafter(F(2.5), F(9))
    golden, _ = absmax_int8(x)
    assert golden[0, 1:3].tolist() == [2, 3]
    for column, allowed, refused in ((1, 3, 1), (2, 2, 4)):
        engine = golden.copy()
        engine[0, column] = allowed
        assert passes("layers.0.attn_in", "codes", golden, engine, x=x)
        engine[0, column] = refused
        assert not passes("layers.0.attn_in", "codes", golden, engine, x=x)


def test_rope_with_float32_angles_passes_and_another_theta_does_not() -> None:
    q, k = f32(64, 4, 16), f32(64, 2, 16)
    golden = rotate(q, rotation_table(np.arange(64), 16, 1e4))
    frequency = F(1) / F(1e4) ** (np.arange(0, 16, 2, dtype=F) / F(16))
    angle = np.arange(64, dtype=F)[:, None] * frequency
    sin, cos = np.sin(angle)[:, None], np.cos(angle)[:, None]
    a, b = q[..., :8], q[..., 8:]
    honest = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)
    inputs = {"q": q, "k": k}
    assert passes("layers.0.rope", "q", golden, honest, **inputs)
    for theta in (9999.0, 5e5):
        assert not passes("layers.0.rope", "q", golden, rotate(q, rotation_table(np.arange(64), 16, theta)), **inputs)
    assert not passes("layers.0.rope", "q", golden, rotate(q, rotation_table(np.arange(1, 65), 16, 1e4)), **inputs)


@pytest.mark.parametrize("total", ORDERS)
def test_attention_in_any_order_passes_and_another_scale_does_not(total: Callable[..., Any]) -> None:
    q, k, v = f32(40, 4, 16) * 3, f32(40, 2, 16) * 3, f32(40, 2, 16)
    golden = softmax_weights(q, k, start=0)
    keys = np.repeat(k, 2, axis=1)

    def softmax(scale: float) -> np.ndarray:
        scores = total(q.transpose(1, 0, 2)[:, :, None] * keys.transpose(1, 0, 2)[:, None]) * F(scale)
        scores = np.where(np.tril(np.ones((40, 40))) > 0, scores, F(-np.inf))
        powers = np.exp(scores - scores.max(axis=2, keepdims=True))
        return powers / total(powers)[..., None]

    assert passes("layers.0.probs", "x", golden, softmax(0.25), q=q, k=k)
    assert not passes("layers.0.probs", "x", golden, softmax(0.2501), q=q, k=k)
    mixed = mix_values(golden, v)
    values = np.repeat(v, 2, axis=1).transpose(1, 2, 0)
    honest = total(golden[:, :, None, :] * values[:, None]).transpose(1, 0, 2).reshape(40, 64)
    assert passes("layers.0.attn_mix", "x", mixed, honest, probs=golden, v=v.reshape(40, 32))
    tiled = mix_values(golden, v[:, ::-1])  # the other KV head
    assert not passes("layers.0.attn_mix", "x", mixed, tiled, probs=golden, v=v.reshape(40, 32))


def test_silu_in_float32_passes_far_below_zero_too_and_gelu_does_not() -> None:
    c = config(activation="silu")
    gate = np.concatenate([f32(4, 90), np.full((4, 6), [-80, -87, -88.8, -90, -200, 30], F)], axis=1)
    up = f32(4, 96)
    golden = gated_activation(gate, up, "silu")
    with np.errstate(over="ignore"):
        honest = gate / (F(1) + np.exp(-gate)) * up
        gelu = gate / (F(1) + np.exp(F(-1.702) * gate)) * up
    assert passes("layers.0.ffn_act", "x", golden, honest, c, gate=gate, up=up)
    assert not passes("layers.0.ffn_act", "x", golden, gelu, c, gate=gate, up=up)


def test_squared_relu_in_float32_passes_and_relu_does_not() -> None:
    gate, up = f32(4, 96), f32(4, 96)
    golden = gated_activation(gate, up, "relu2")
    relu = np.maximum(gate, 0)
    assert passes("layers.0.ffn_act", "x", golden, relu * relu * up, gate=gate, up=up)
    assert passes("layers.0.ffn_act", "x", golden, relu * (relu * up), gate=gate, up=up)
    assert not passes("layers.0.ffn_act", "x", golden, relu * up, gate=gate, up=up)
