"""The quantisers of training are the golden ones, gradients pass straight through them, attention is the plain one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_training import TINY

from tritgold.quantize import absmax_int8, absmean_ternary
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold_xla.training import qat
from tritgold_xla.training.objective import diffusion_mask

_trits_and_scale = jax.jit(qat.trits_and_scale)
ROUNDINGS = {"bf16": qat.bf16, "ternary": qat.ternary, "codes": qat.codes}


def normal(seed, shape, std=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * std).astype(np.float32)


@pytest.mark.parametrize("std", [1e-3, 0.06, 20.0])
@pytest.mark.parametrize("shape", [(256, 768), (33, 70)])
def test_trits_and_scale_are_golden(shape, std):
    master = normal(shape[0], shape, std)
    golden = absmean_ternary(master)
    trits, scale = map(np.asarray, _trits_and_scale(master))
    away = np.abs(np.abs(master) / golden.scale - 0.5) > 1e-5  # on the threshold an ulp of the mean decides
    assert away.mean() > 0.999
    np.testing.assert_array_equal(trits[away], golden.trits[away])
    assert scale == bf16_to_f32(f32_to_bf16(golden.scale))


def test_a_matrix_of_zeros_has_no_trits():
    trits, scale = _trits_and_scale(np.zeros((4, 8), np.float32))
    assert not np.asarray(trits).any()
    np.testing.assert_allclose(scale, 1e-5, rtol=2**-8)


def test_a_ternary_weight_is_its_trits_times_the_scale():
    master = normal(1, (64, 256))
    trits, scale = map(np.asarray, _trits_and_scale(master))
    # Adding what was subtracted costs an ulp of the master, which may be some times the scale.
    np.testing.assert_allclose(jax.jit(qat.ternary)(master), trits * scale, rtol=1e-6)


def test_codes_are_golden():
    x = normal(2, (40, 256)) * np.random.default_rng(3).lognormal(0, 3, (40, 1)).astype(np.float32)
    x[0] = 0
    x[1] = 1e-7  # below the floor of the scale
    codes, scale = absmax_int8(x)
    got = np.asarray(jax.jit(qat.codes)(x))
    # Dividing, and adding what was subtracted: an ulp each.
    np.testing.assert_allclose(got, codes / scale[:, None], rtol=2**-22)
    np.testing.assert_array_equal(np.rint(got * scale[:, None]), codes)


def test_bf16_rounds_half_to_even_as_the_file_does():
    x = np.append(normal(4, 1000), np.float32([1 + 2**-8, 1 + 3 * 2**-8]))
    np.testing.assert_array_equal(jax.jit(qat.bf16)(x), bf16_to_f32(f32_to_bf16(x)))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_gradients_pass_straight_through(rounding):
    x, weights = normal(5, (8, 32)), normal(6, (8, 32))
    x[0] = 0
    got = jax.grad(lambda x: (ROUNDINGS[rounding](x) * weights).sum())(x)
    np.testing.assert_array_equal(got, weights)
    assert (np.asarray(ROUNDINGS[rounding](x)) != x).mean() > 0.5  # there is a rounding to pass through


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("mask", [np.tril(np.ones((8, 8), bool)), diffusion_mask(4, 2)], ids=["causal", "diffusion"])
def test_attention_is_a_softmax_for_each_head(heads, kv_heads, mask):
    q = normal(7, (2, 8, heads, 16))
    k, v = normal(8, (2, 8, kv_heads, 16)), normal(9, (2, 8, kv_heads, 16))
    expected = np.empty(q.shape)
    for b in range(2):
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            for query in range(8):
                seen = np.flatnonzero(mask[query])
                powers = np.exp(k[b, seen, kv_head].astype(float) @ q[b, query, head] / 4)
                expected[b, query, head] = powers / powers.sum() @ v[b, seen, kv_head]
    np.testing.assert_allclose(qat.attention(q, k, v, mask), expected, atol=1e-6)  # float32 sums, values of 1


def test_rotation_keeps_position_zero_and_depends_on_distance_alone():
    q, k = normal(10, (1, 1, 1, 16)), normal(11, (1, 1, 1, 16))
    np.testing.assert_array_equal(qat.rotate(q, np.array([0]), 1e4), q)

    def product(at, other):
        return float((qat.rotate(q, np.array([at]), 1e4) * qat.rotate(k, np.array([other]), 1e4)).sum())

    assert product(9, 4) == pytest.approx(product(25, 20), abs=1e-5)
    assert product(9, 4) != pytest.approx(product(9, 5), abs=1e-2)


@pytest.mark.parametrize("ternary", [True, False])
def test_a_nudge_of_one_master_is_rounded_away_only_in_the_ternary_network(ternary):
    recipe = replace(TINY, ternary=ternary)
    parameters = jax.tree.map(jnp.asarray, qat.initial_parameters(recipe))
    down = parameters["layers"]["down"]
    largest = np.unravel_index(np.abs(down).argmax(), down.shape)
    nudged = parameters | {"layers": parameters["layers"] | {"down": down.at[largest].multiply(1.01)}}

    @jax.jit
    def states(parameters):
        return qat.hidden_states(
            parameters, np.array([[5, 9, 7]]), recipe, np.arange(3), np.tril(np.ones((3, 3), bool))
        )

    assert np.array_equal(states(parameters), states(nudged)) is ternary
