"""A matrix in a stack of layers: the same integers as alone, and a loop does not copy it out of the stack first."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul import kernels
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes, packed

LAYERS, IN, OUT = 3, 200, 640  # more rows than a tile has (below), and columns that fill no word
rng = np.random.default_rng(4)
trits = rng.integers(-1, 2, (LAYERS, OUT, IN), dtype=np.int8)
stack = Planes(*(np.stack(arrays) for arrays in zip(*map(packed, trits), strict=True)))


@pytest.fixture(autouse=True, params=[1, 2])
def tiles(monkeypatch, request):
    """Of at most 256 rows. One thread: two whole ones, and one that begins earlier; two: two in each half."""
    monkeypatch.setattr(kernels, "tile_rows", lambda: 256)
    monkeypatch.setattr(kernels, "threads", lambda: request.param)


def by_number(planes, nth):
    return planes._replace(layer=nth)


def taken_out(planes, nth):
    return jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, nth, keepdims=False), planes)


def program(name, take):
    """All layers in a loop, each on its own codes."""

    def all_of(codes, planes):
        one = FORMULATIONS[name].accumulate
        return lax.map(lambda nth: one(codes[nth], take(planes, nth)), jnp.arange(LAYERS))

    return jit(all_of)


def codes(tokens):
    return np.random.default_rng(tokens).integers(-128, 128, (LAYERS, tokens, IN), dtype=np.int8)


def matrices_kept(name, tokens, take):
    """What a compiled loop holds or makes that is as large as a matrix of the stack."""
    text = program(name, take).lower(codes(tokens), stack).compile().as_text()
    shape = rf"u32\[(?:1,)?2,{stack.bits.shape[2]},{OUT}\]"
    found = re.findall(rf"%\S+ = {shape}\S* ([a-z-]+)\(", text)
    return [operation for operation in found if operation in ("fusion", "get-tuple-element")]


@pytest.mark.parametrize("name", FORMULATIONS)
@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_every_formulation_gives_the_integers_of_each_layer(name, tokens):
    found = np.asarray(program(name, by_number)(codes(tokens), stack))
    wanted = np.einsum("lti,loi->lto", codes(tokens).astype(np.int32), trits.astype(np.int32))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["select", "bit-serial", "int8-dot", "float-dot"])
@pytest.mark.parametrize("tokens", [9, 32])
def test_no_loop_over_tokens_or_tiles_copies_the_matrix_first(name, tokens):
    assert matrices_kept(name, tokens, by_number) == []
    assert matrices_kept(name, tokens, taken_out), "the copy that this test is to find"


@pytest.mark.parametrize(("tokens", "loops"), [(1, 1), (8, 1), (9, 2)])
def test_bits_of_a_few_tokens_are_counted_without_a_loop_over_them(tokens, loops):
    """XLA runs that loop on one thread; the other one is over the layers."""
    text = program("select", by_number).lower(codes(tokens), stack).compile().as_text()
    assert len(re.findall(r" while\(", text)) == loops
