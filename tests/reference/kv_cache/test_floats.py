"""float32, float16 and bfloat16 rows against NumPy's and ml_dtypes' own casts."""

import ml_dtypes
import numpy as np
import pytest

from tritgold.errors import ConfigError, NonFiniteError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.bfloat16 import BF16
from tritgold.kv_cache.float16 import F16
from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.token_rows import TokenScheme

RNG = np.random.default_rng(16)
SHAPE = Sizes(1, 2, 8)


def numbers() -> np.ndarray:
    """Finite float32 that fit float16, subnormal ones of it among them, and ties of both formats."""
    x = np.ldexp(RNG.uniform(-1, 1, 100_000), RNG.integers(-30, 16, 100_000)).astype(np.float32)
    halves = (np.arange(65536, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    x = np.concatenate([x, halves[np.abs(halves) < 65504]])
    return x[: x.size // 16 * 16].reshape(-1, 2, 8)


@pytest.mark.parametrize(("scheme", "dtype"), [(F32(), np.float32), (F16(), np.float16), (BF16(), ml_dtypes.bfloat16)])
def test_bytes_are_those_of_the_cast_and_reading_widens_them(scheme: TokenScheme, dtype: type) -> None:
    x = numbers()
    expected = x.astype(dtype)
    rows = scheme.store(x)
    assert rows.tobytes() == expected.tobytes()
    assert rows.shape == (len(x), 16 * expected.itemsize)
    assert scheme.row_bytes(SHAPE) == rows.shape[1]
    assert np.array_equal(scheme.load(rows, SHAPE), expected.astype(np.float32))


def test_truncation_keeps_the_upper_half() -> None:
    x = numbers()
    scheme = BF16("truncate")
    rows = scheme.store(x)
    assert np.array_equal(rows.reshape(-1, 2), x.reshape(-1).view(np.uint8).reshape(-1, 4)[:, 2:])
    assert (np.abs(scheme.load(rows, SHAPE)) <= np.abs(x)).all()
    assert (rows != BF16().store(x)).any(axis=1).mean() > 0.4


@pytest.mark.parametrize(
    ("scheme", "fits", "overflows"),
    [
        (F16(), 65519.996, 65520.0),
        (BF16(), *np.array([0x7F7F7FFF, 0x7F7F8000], np.uint32).view(np.float32)),  # up to the midpoint
    ],
)
def test_what_would_become_infinity_is_refused(scheme: TokenScheme, fits: float, overflows: float) -> None:
    def store(value: float) -> np.ndarray:
        return scheme.store(np.full((1, 1, 2), np.array([value, -value], np.float32)))

    assert np.isfinite(scheme.load(store(fits), Sizes(1, 1, 2))).all()
    with pytest.raises(NonFiniteError, match="does not fit") as refused:
        store(overflows)
    assert refused.value.kind == "kv-overflow"


def test_truncation_never_overflows() -> None:
    largest = np.full((1, 1, 1), np.finfo(np.float32).max)
    assert BF16("truncate").load(BF16("truncate").store(largest), Sizes(1, 1, 1)) == np.float32(3.3895314e38)


def test_no_third_rounding() -> None:
    with pytest.raises(ConfigError, match=r"bf16 rounding: is not usable: found 'up', expected even or truncate"):
        BF16("up")  # type: ignore[arg-type]
