"""Each float operation against the golden one: how far float32 may be from float64 rounded once."""

import numpy as np
import pytest
from engine_cases import Matrix

import tritgold.layers.embedding as golden_embedding
import tritgold.layers.feed_forward as golden_feed_forward
import tritgold.layers.lm_head as golden_head
import tritgold.layers.rms_norm as golden_norm
import tritgold.layers.rotary as golden_rotary
from tritgold_xla.layers import lm_head
from tritgold_xla.layers.embedding import embed
from tritgold_xla.layers.feed_forward import gated_activation
from tritgold_xla.layers.rms_norm import rms_norm
from tritgold_xla.layers.rotary import rotate, rotation_table
from tritgold_xla.runtime.flags import jit

CHUNKS = (1, 8)
U = 2.0**-24  # half the spacing of float32 at 1: what one rounding may cost

_rms_norm = jit(rms_norm, static=("eps",))
_rotate = jit(rotate)
_gated = jit(gated_activation, static=("activation",))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("width", [1, 77, 256])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e7])
def test_rms_norm(width, size):
    x, gain = normal(128, width) * np.float32(size), normal(width, seed=1)
    expected = golden_norm.rms_norm(x, gain, 1e-5)
    got = np.asarray(_rms_norm(x, gain, eps=1e-5))
    # A sum by halves, then six single operations.
    assert (np.abs(got - expected) <= (6 + np.log2(width)) * U * np.abs(expected)).all()
    for chunk in CHUNKS:
        np.testing.assert_array_equal(_rms_norm(x[:chunk], gain, eps=1e-5), got[:chunk])


def test_rms_norm_of_zero_nan_infinity_and_overflow():
    x = np.zeros((5, 4), np.float32)
    x[1, 0], x[2, 1], x[3, 2], x[4] = np.nan, np.inf, 1e25, 1
    got = np.asarray(_rms_norm(x, np.ones(4, np.float32), eps=1e-5))
    assert not got[0].any()
    assert np.isnan(got[1:4]).all(), "a token that float32 cannot norm must not look like one that it can"
    assert np.isfinite(got[4]).all()


@pytest.mark.parametrize("head_dim", [2, 10, 64])
def test_rotate(head_dim):
    x = normal(128, 3, head_dim)
    sin, cos = rotation_table(128, head_dim, 5e5)
    expected = golden_rotary.rotate(x, golden_rotary.rotation_table(np.arange(128), head_dim, 5e5))
    got = np.asarray(_rotate(x, sin, cos))
    pair = np.abs(x).reshape(128, 3, 2, -1).sum(axis=2)
    assert (np.abs(got - expected) <= 4 * U * np.tile(pair, 2)).all()
    np.testing.assert_array_equal(got[0], x[0])  # position 0 turns nothing
    for chunk in CHUNKS:
        np.testing.assert_array_equal(_rotate(x[:chunk], sin[:chunk], cos[:chunk]), got[:chunk])


def test_rotation_table_at_late_positions():
    # 4096 rad and more: a table from float32 angles would be off by 1e-4 here.
    sin, cos = rotation_table(5000, 64, 5e5)
    golden_sin, golden_cos = golden_rotary.rotation_table(np.arange(5000), 64, 5e5)
    assert np.abs(sin - golden_sin).max() < U
    assert np.abs(cos - golden_cos).max() < U


@pytest.mark.parametrize("activation", ["relu2", "silu"])
def test_gated_activation(activation):
    gate, up = normal(128, 77) * np.float32(9), normal(128, 77, seed=1)
    expected = golden_feed_forward.gated_activation(gate, up, activation)
    got = np.asarray(_gated(gate, up, activation=activation))
    assert (np.abs(got - expected) <= 6 * U * np.abs(expected)).all()
    for chunk in CHUNKS:
        np.testing.assert_array_equal(_gated(gate[:chunk], up[:chunk], activation=activation), got[:chunk])


def test_silu_far_out():
    gate = np.array([[-200, -90, 0, 200]], np.float32)
    assert np.asarray(_gated(gate, np.ones_like(gate), activation="silu")).tolist() == [[0, 0, 0, 200]]


def test_embedding_is_exact():
    table, tokens = normal(101, 13), np.array([0, 100, 7], np.int32)
    expected = golden_embedding.embed(tokens.astype(np.int64), Matrix(table))
    np.testing.assert_array_equal(jit(embed)(tokens, table), expected)


def test_logits():
    x, rows = normal(8, 256), normal(101, 256, seed=1)
    expected = golden_head.logits(x, Matrix(rows))
    got = np.asarray(jit(lm_head.logits)(x, rows))
    assert (np.abs(got - expected) <= 2 * np.sqrt(256) * U * (np.abs(x) @ np.abs(rows).T)).all()
