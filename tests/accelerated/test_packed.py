import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritgold_xla.bit_linear import accumulate
from tritgold_xla.flags import jit
from tritgold_xla.packed import pack, unpack

_unpack = jit(unpack, static=("in_",))


@settings(deadline=None, derandomize=True, max_examples=12)
@given(out=st.integers(1, 40), in_=st.integers(1, 90), seed=st.integers(0, 2**32 - 1))
def test_unpacking_gives_the_trits_back(out, in_, seed):
    trits = np.random.default_rng(seed).integers(-1, 2, (out, in_)).astype(np.int8)
    planes = pack(trits)
    assert planes.dtype == np.uint8
    assert planes.shape == (out, -(-in_ // 4))
    np.testing.assert_array_equal(_unpack(planes, in_=in_), trits)


@pytest.mark.parametrize("in_", [1, 2, 3, 77])
def test_what_fills_the_last_byte_is_the_trit_zero(in_):
    planes = pack(np.ones((2, in_), np.int8))
    whole = np.asarray(unpack(jnp.asarray(planes), in_=4 * planes.shape[1]))
    assert whole.sum() == 2 * in_
    assert not whole[:, in_:].any()
    codes = np.full((1, 4 * planes.shape[1]), -128, np.int8)  # so that any other filling would be seen
    assert np.asarray(accumulate(jnp.asarray(codes), jnp.asarray(planes))).tolist() == [[-128 * in_] * 2]
