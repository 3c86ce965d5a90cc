"""llama.cpp's linear layer: against ggml's own output, a second writing scalar by scalar, and rows worked by hand."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from q8_k_cases import NAMES, activations, scalar_dot, scalar_q8_k, trits
from refusals import refusal

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import ConfigError, NonFiniteError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.graph import trace_names
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import ARITHMETICS, GOLDEN_ARITHMETIC, Q8_K_ARITHMETIC, mode_id
from tritgold.layers.q8_k import accumulate_blocks, apply_block_scales, quantize_q8_k
from tritgold.model import forward
from tritgold.modes import GOLDEN, LLAMA_CPP_Q8_K, comparable
from tritgold.trace import Trace

examples = settings(max_examples=60, deadline=None, derandomize=True)
WIDE = Shape(hidden=256, inter=512, layers=2, heads=4, kv_heads=2, context=16)

# What llama.cpp's quantize_row_q8_K makes of the rows of ``activations``, by tests/peers/llama_cpp_blocks.py with
# xllamacpp 2026.10.11549 (tests/peers/test_llama_cpp.py asks it again).
GGML_CODES = "279324ce5c59987d7dc16b0db80bcb4c42fb33edcdaffe38dcb4f54474155c9f"
GGML_SCALES = [
    "-0x1.f987a60000000p-7",
    "-0x1.0000000000000p+0",
    "0x1.0000000000000p+0",
    "-0x1.83060c0000000p-6",
    "0x1.83060c0000000p-6",
    "0x0.0p+0",
    "0x0.0p+0",
    "0x0.0p+0",
    "-0x1.f987a60000000p+93",
]


def block(**values: float) -> np.ndarray:
    """[1, 256] of zeros, with the element ``x7`` at channel 7."""
    x = np.zeros((1, 256), np.float32)
    for name, value in values.items():
        x[0, int(name[1:])] = value
    return x


# ---- activations -------------------------------------------------------------------------------------------------


def test_codes_and_scales_are_those_of_ggml() -> None:
    codes, scale = quantize_q8_k(activations())
    assert codes.dtype == np.int8
    assert hashlib.sha256(codes.tobytes()).hexdigest() == GGML_CODES
    assert [float(s).hex() for s in scale[:, 0]] == GGML_SCALES


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_that_of_the_second_writing(name: str) -> None:
    (x,) = activations()[[NAMES.index(name)]]
    codes, scale = quantize_q8_k(x[None])
    expected, expected_scale = scalar_q8_k(x)
    assert codes[0].tolist() == expected
    assert scale[0, 0] == expected_scale


@examples
@given(st.integers(0, 2**32 - 1), st.integers(-60, 60))
def test_random_blocks_are_those_of_the_second_writing(seed: int, exponent: int) -> None:
    x = (np.random.default_rng(seed).standard_normal((1, 256)) * 2.0**exponent).astype(np.float32)
    codes, scale = quantize_q8_k(x)
    assert (codes[0].tolist(), scale[0, 0]) == scalar_q8_k(x[0])


def test_a_zero_block_is_zeros_with_scale_zero_and_touches_no_other() -> None:
    x = activations().reshape(3, 768)
    codes, scale = quantize_q8_k(x)
    assert NAMES[5] == "zeros"
    assert not codes[1, 512:].any()
    assert scale[1, 2] == 0
    x[1, 512:] = 1
    other, other_scale = quantize_q8_k(x)
    assert np.array_equal(codes[1, :512], other[1, :512])
    assert np.array_equal(scale[1, :2], other_scale[1, :2])


def test_ties_go_to_the_even_code() -> None:
    """i = -1: half-away would give [-1, -2, -3, 1]; so would truncation of x + 0.5 somewhere."""
    codes, scale = quantize_q8_k(block(x0=127, x1=0.5, x2=1.5, x3=2.5, x4=-0.5))
    assert codes[0, :5].tolist() == [-127, 0, -2, -2, 0]
    assert scale.tolist() == [[-1.0]]


def test_the_sign_of_the_largest_element_flips_every_code() -> None:
    positive, negative = block(x3=4, x9=-1), block(x3=-4, x9=-1)
    (codes, scale), (flipped, flipped_scale) = quantize_q8_k(positive), quantize_q8_k(negative)
    assert (codes[0, 3], codes[0, 9]) == (-127, 32)
    assert (flipped[0, 3], flipped[0, 9]) == (-127, -32)
    assert scale[0, 0] == -flipped_scale[0, 0] < 0


def test_of_two_largest_the_first_decides() -> None:
    """A search from the end, or one for the maximum before the minimum, gives the other signs."""
    first, second = quantize_q8_k(block(x10=3, x20=-3)), quantize_q8_k(block(x10=-3, x20=3))
    assert first[0][0, [10, 20]].tolist() == second[0][0, [10, 20]].tolist() == [-127, 127]
    assert first[1][0, 0] < 0 < second[1][0, 0]


def test_each_block_has_its_own_scale() -> None:
    """One scale a token would round the small block away."""
    codes, scale = quantize_q8_k(np.concatenate([block(x0=-1000), block(x0=-1, x1=0.5)], axis=1))
    assert codes[0, [0, 256, 257]].tolist() == [-127, -127, 64]
    assert scale.shape == (1, 2)


def test_a_block_too_small_for_a_finite_inverse_is_silent() -> None:
    """-127 / m overflows float32 below |m| = 3.74e-37: ggml's codes there are 0 and its scale is a zero."""
    codes, scale = quantize_q8_k(np.concatenate([block(x0=3.7e-37), block(x0=3.8e-37)]))
    assert codes[:, 0].tolist() == [0, -127]
    assert scale[0, 0] == 0
    assert scale[1, 0] < 0


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_non_finite_activations_are_refused_by_token(value: float) -> None:
    x = np.zeros((3, 256), np.float32)
    x[1, 77] = value
    error = refusal(lambda: quantize_q8_k(x))
    assert isinstance(error, NonFiniteError)
    assert error.kind == "activation-non-finite"
    assert "token 1" in str(error)


@pytest.mark.parametrize("width", [1, 255, 257, 300])
def test_a_width_off_the_blocks_is_refused(width: int) -> None:
    error = refusal(lambda: quantize_q8_k(np.ones((1, width), np.float32)))
    assert isinstance(error, ConfigError)
    assert error.kind == "block-width"
    assert str(width) in str(error)


# ---- the linear layer --------------------------------------------------------------------------------------------


def test_accumulators_are_the_integer_sums_of_each_block() -> None:
    codes, _ = quantize_q8_k(activations().reshape(3, 768))
    weight = trits(5, 768)
    acc = accumulate_blocks(codes, weight)
    assert acc.dtype == np.int32
    expected = np.einsum(
        "tbi,obi->tob", codes.reshape(3, 3, 256).astype(np.int64), weight.reshape(5, 3, 256).astype(np.int64)
    )
    assert np.array_equal(acc, expected)
    assert len(np.unique(acc)) > 10


def test_the_largest_accumulator_is_exact() -> None:
    full = np.full((1, 512), -127, np.int8)
    assert accumulate_blocks(full, np.ones((1, 512), np.int8)).tolist() == [[[-127 * 256] * 2]]


def test_the_linear_layer_is_the_scalar_sum() -> None:
    """Bit for bit, and the order shows: from the last block to the first other bits come out."""
    x, weight = activations()[[0, 1, 4, 3, 8, 2]].reshape(2, 768) * np.float32([[1], [1e-3]]), trits(40, 768)
    x[1, 256:512] *= np.float32(2**-100)
    codes, scale = quantize_q8_k(x)
    w = np.array(0.1875 * 1.01, np.float32)
    got = apply_block_scales(accumulate_blocks(codes, weight), scale, w, "multiply")
    expected = [[scalar_dot(c, row, s, np.float32(w)) for row in weight] for c, s in zip(codes, scale, strict=True)]
    assert got.dtype == np.float32
    assert np.array_equal(got, np.array(expected))
    turned = apply_block_scales(accumulate_blocks(codes, weight)[..., ::-1], scale[:, ::-1], w, "multiply")
    assert not np.array_equal(got, turned)
    np.testing.assert_allclose(got, turned, rtol=1e-3, atol=1e-4)


def test_a_dividing_scale_multiplies_by_its_inverse() -> None:
    acc, scale, w = np.array([[[7, -3]]], np.int32), np.array([[0.3, -0.7]], np.float32), np.array(3, np.float32)
    inverse = np.asarray(np.float32(1) / np.float32(3))
    divided = apply_block_scales(acc, scale, w, "divide")
    assert np.array_equal(divided, apply_block_scales(acc, scale, inverse, "multiply"))
    assert divided[0, 0] == pytest.approx((7 * 0.3 + 3 * 0.7) / 3, rel=1e-6)


# ---- the mode ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("wide")
    write_seeded_model(folder, WIDE)
    return open_checkpoint(folder)


def run(checkpoint: Checkpoint, tokens: list[int], pieces: list[int]) -> Trace:
    trace, cache = Trace(), Float32Cache(checkpoint.config, len(tokens))
    start = 0
    for size in pieces:
        part = tokens[start : start + size]
        forward(part, checkpoint.weights, checkpoint.config, cache, trace, arithmetic=Q8_K_ARITHMETIC)
        start += size
    return trace


def test_the_forward_pass_runs_in_the_mode_and_its_trace_says_so(checkpoint: Checkpoint) -> None:
    trace = run(checkpoint, [5, 6, 7], [3])
    assert list(trace.arrays) == trace_names(checkpoint.config)
    assert trace.mode == LLAMA_CPP_Q8_K.id
    assert trace["layers.0.down_in.scale"].shape == (3, 2)
    assert trace["layers.1.down.acc"].shape == (3, 256, 2)


def test_prefill_chunks_and_single_steps_give_the_same_bits(checkpoint: Checkpoint) -> None:
    tokens = [40, 41, 99, 3, 40]
    assert len({run(checkpoint, tokens, pieces).digest() for pieces in ([5], [1] * 5, [2, 3])}) == 1


def test_it_is_near_the_golden_model_and_not_equal(checkpoint: Checkpoint) -> None:
    """Both quantise to 8 bits: they differ by rounding noise of a code, which is a hundred times that of float32."""
    tokens = [40, 41, 99, 3, 40]
    golden = forward(tokens, checkpoint.weights, checkpoint.config)
    difference = np.abs(run(checkpoint, tokens, [5])["logits"] - golden).max() / np.abs(golden).max()
    assert 1e-4 < difference < 0.2


def test_silu_in_its_place_changes_the_logits(checkpoint: Checkpoint) -> None:
    silu = replace(checkpoint.config, activation="silu")
    one, other = (forward([1, 2], checkpoint.weights, c, arithmetic=Q8_K_ARITHMETIC) for c in (checkpoint.config, silu))
    assert np.abs(one - other).max() > 0.1 * np.abs(one).max()


def test_the_mode_is_another_arithmetic_than_golden() -> None:
    assert not comparable(LLAMA_CPP_Q8_K.id, GOLDEN.id)
    assert not comparable(LLAMA_CPP_Q8_K.id, "golden.float32/1")
    assert comparable(LLAMA_CPP_Q8_K.id, f"{LLAMA_CPP_Q8_K.name}.avx2/1")


def test_every_named_arithmetic_has_its_own_id_and_an_altered_one_has_none_of_them() -> None:
    ids = [mode_id(arithmetic) for arithmetic in ARITHMETICS.values()]
    assert ids == [mode.id for mode in ARITHMETICS]
    assert len(set(ids)) == len(ids) > 1
    assert mode_id(replace(GOLDEN_ARITHMETIC, quantize=quantize_q8_k)) not in ids
