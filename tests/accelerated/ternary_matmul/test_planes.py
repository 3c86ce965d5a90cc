import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul import kernels, planes
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes

_pack, _unpack = planes.packed, jit(planes.unpack)
_filled, _bit_planes = jit(planes.filled), jit(planes.bit_planes)


def random(seed, *shape):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.int8)


@settings(deadline=None, derandomize=True, max_examples=6)
@given(out=st.integers(1, 40), in_=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
def test_every_trit_has_the_bits_that_the_docstring_says(out, in_, seed):
    trits = random(seed, out, in_)
    bits, negatives = (np.asarray(array) for array in _pack(trits))
    words = planes.words(in_)
    assert (bits.dtype, bits.shape) == (np.uint32, (2, words, out))
    for row, column in zip(range(out), np.random.default_rng(seed).integers(0, in_, out), strict=True):
        bit, word = divmod(int(column), words)
        nonzero, negative = (bits[:, word, row] >> np.uint32(bit)) & 1
        assert (nonzero, negative) == (trits[row, column] != 0, trits[row, column] < 0)
    assert int(np.bitwise_count(bits[0]).sum()) == np.count_nonzero(trits), "what fills the last words is not a 0"
    np.testing.assert_array_equal(negatives, (trits < 0).sum(axis=1))


@pytest.mark.parametrize("in_", [1, 31, 77, 128, 129, 300])
def test_unpacked_trits_and_filled_codes_stand_in_the_same_order(in_):
    trits = random(in_, 7, in_)
    unpacked = np.asarray(_unpack(_pack(trits)[0]))
    assert (unpacked.dtype, unpacked.shape) == (np.int8, (32 * planes.words(in_), 7))
    # Codes that are the trits themselves come out in their places, and zeros after them.
    np.testing.assert_array_equal(_filled(trits), unpacked.T)


@pytest.mark.parametrize("in_", [1, 77, 128, 300])
def test_the_bit_planes_are_the_bits_of_the_codes(in_):
    codes = np.random.default_rng(in_).integers(-128, 128, in_).astype(np.int8)
    words = planes.words(in_)
    columns = np.pad(codes, (0, 32 * words - in_)).view(np.uint8).reshape(32, words).astype(np.uint32)
    shifts = np.arange(32, dtype=np.uint32)[:, None]
    expected = [np.bitwise_or.reduce(((columns >> np.uint32(bit)) & 1) << shifts, axis=0) for bit in range(8)]
    np.testing.assert_array_equal(_bit_planes(codes), expected)


@settings(deadline=None, derandomize=True, max_examples=4)
@given(
    shape=st.tuples(st.sampled_from([1, 2, 5, 7, 8, 33]), st.integers(1, 300), st.integers(1, 40)),
    seed=st.integers(0, 2**32 - 1),
)
@pytest.mark.parametrize("name", FORMULATIONS)
def test_every_formulation_gives_the_exact_integers(name, shape, seed):
    tokens, in_, out = shape
    trits = random(seed, out, in_)
    codes = np.random.default_rng(seed).integers(-128, 128, (tokens, in_)).astype(np.int8)
    acc = jit(FORMULATIONS[name].accumulate)(codes, Planes(*_pack(trits)))
    assert acc.dtype == np.int32
    np.testing.assert_array_equal(acc, codes.astype(np.int64) @ trits.T.astype(np.int64))


@pytest.mark.parametrize("name", [name for name in FORMULATIONS if name.endswith("dot")])
@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("more", [-1, 1, 20, 103])
def test_no_row_is_lost_between_tiles(monkeypatch, name, count, more):
    monkeypatch.setattr(kernels, "ALONE", 40)
    monkeypatch.setattr(kernels, "SHARED", 24)
    monkeypatch.setattr(kernels, "threads", lambda: count)
    out = {1: 40, 2: 48, 16: 96}[count] + more
    trits, codes = random(out, out, 40), np.random.default_rng(out).integers(-128, 128, (3, 40)).astype(np.int8)
    acc = jit(FORMULATIONS[name].accumulate)(codes, Planes(*_pack(trits)))
    np.testing.assert_array_equal(acc, codes.astype(np.int64) @ trits.T.astype(np.int64))


@pytest.mark.parametrize("name", FORMULATIONS)
@pytest.mark.parametrize("tokens", [1, 33])
def test_accumulators_hold_the_largest_sums(name, tokens):
    in_ = 6912
    codes = np.full((tokens, in_), 127, np.int8)
    codes[:, ::2] = -128
    trits = np.stack([np.ones(in_, np.int8), np.where(np.arange(in_) % 2, 1, -1).astype(np.int8)])
    acc = np.asarray(jit(FORMULATIONS[name].accumulate)(codes, Planes(*_pack(trits))))
    assert (acc == [-in_ // 2, in_ // 2 * 255]).all()


@pytest.mark.parametrize("name", ["select", "bit-serial"])
@pytest.mark.parametrize("in_", [512, 640, 768])  # four, five and six words are added before they are written
@pytest.mark.parametrize("tokens", [1, 3, 9])
def test_the_partial_sums_hold_the_largest_codes(name, in_, tokens):
    codes, trits = np.full((tokens, in_), -128, np.int8), np.outer([1, -1], np.ones(in_)).astype(np.int8)
    acc = np.asarray(jit(FORMULATIONS[name].accumulate)(codes, Planes(*_pack(trits))))
    assert (acc == [-128 * in_, 128 * in_]).all()


def test_a_partial_sum_of_too_many_words_would_be_seen(monkeypatch):
    monkeypatch.setattr(kernels, "_FOLDS", (12,))
    jax.clear_caches()  # of traces, which do not know of these folds
    codes, trits = np.full((1, 1536), -128, np.int8), -np.ones((3, 1536), np.int8)
    acc = np.asarray(jit(FORMULATIONS["select"].accumulate)(codes, Planes(*_pack(trits))))
    jax.clear_caches()
    assert (acc != 128 * 1536).all()


def test_a_formulation_that_is_wrong_in_one_bit_would_be_seen():
    trits, codes = random(3, 5, 64), np.full((1, 64), 64, np.int8)
    weight = Planes(*_pack(trits))
    wrong = jit(lambda c, w: FORMULATIONS["select"].accumulate(c ^ np.int8(1), w))(codes, weight)
    assert not np.array_equal(wrong, codes.astype(int) @ trits.T.astype(int))


def test_prepared_codes_serve_several_matrices():
    codes = np.random.default_rng(0).integers(-128, 128, (1, 77)).astype(np.int8)
    way = FORMULATIONS["select"]
    prepared = jit(way.prepare)(codes)
    for seed in (1, 2):
        trits = random(seed, 9, 77)
        acc = jit(way.multiply)(prepared, Planes(*_pack(trits)))
        np.testing.assert_array_equal(acc, codes.astype(int) @ trits.T.astype(int))
        assert isinstance(acc, jax.Array)
