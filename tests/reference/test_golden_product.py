"""One product of known digest from every format: bytes that nobody here packed, read, multiplied, scaled.

The matrix, q and their digests were published once for all formats; q[c] = (37 c + 11) mod 255 - 127.
"""

import hashlib

import numpy as np
import pytest
from second_writing import NAMES, layout_of, written
from trit_layouts import golden_matrix

from tritgold.layers.bit_linear import accumulate, apply_scales

SHAPE = (256, 512)
EXACT = ("i2_s", "i2_s 64", "i2_s_4rows", "tl1", "tl2", "f32")  # hold any float32 scale


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def q(columns: int) -> np.ndarray:
    return np.array([[(37 * c + 11) % 255 - 127 for c in range(columns)]], np.int8)


@pytest.mark.parametrize("name", NAMES)
def test_the_product_of_the_golden_matrix(name: str) -> None:
    layout = layout_of(name)
    trits = layout.unpack(written(name, golden_matrix(*SHAPE), np.float32(1)), SHAPE).trits
    y = accumulate(q(512), trits)[0]
    assert y[:6].tolist() == [905, -3640, 5210, -2981, 6348, -2904]
    assert (y.dtype, y.size, digest(y.astype("<i4"))) == (np.int32, 256, "96e15f9c04e33b8b")


def test_the_digest_sees_two_rows_exchanged_and_one_trit() -> None:
    for change in ([1, 0], [0, 0]):
        trits = golden_matrix(*SHAPE)
        trits[:2] = trits[change]
        assert digest(accumulate(q(512), trits)[0].astype("<i4")) != "96e15f9c04e33b8b"


@pytest.mark.parametrize("name", NAMES)
def test_the_narrower_golden_matrix(name: str) -> None:
    """128 x 448: rows of which TL2 has 64 weights in pairs; no whole blocks of 256 or, but for one block, of 128."""
    shape, layout = (128, 448), layout_of(name)
    trits = golden_matrix(*shape)
    assert digest(trits) == "d6336d9ab7eccb57"
    if name in ("tq1_0", "tq2_0", "sglbitnt", "q2_0 128"):
        assert shape[1] % 128
        return
    assert digest(layout.unpack(written(name, trits, np.float32(1)), shape).trits) == "d6336d9ab7eccb57"


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("scale", [0.37, 2.6])
def test_a_scale_that_is_not_1_is_the_file_s(name: str, scale: float) -> None:
    """B11: equal sums, and outputs that are off by one number where the scale is another. Halves of y are exact, and
    their product with 24 bits of scale is exact in float64, so that there is one rounding."""
    layout = layout_of(name)
    tensor = layout.unpack(written(name, golden_matrix(*SHAPE), np.float32(scale)), SHAPE).with_one_scale()
    assert tensor.scale == np.float32(scale)
    y = accumulate(q(512), tensor.trits)
    out = apply_scales(y, np.array([2], np.float32), tensor.scale, "multiply")[0]
    assert out.tolist() == [float(np.float32(sum_ / 2 * float(np.float32(scale)))) for sum_ in y[0].tolist()]
    by_hand = {0.37: [167.425, -673.4, 963.85], 2.6: [1176.5, -4732.0, 6773.0]}[scale]
    assert out[:3] == pytest.approx(by_hand, rel=1e-7)
