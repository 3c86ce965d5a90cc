"""Misreadings by name: which wrong layout explains trits that differ from the true ones.

Each of these has happened (the converter or engine is named below). All but the last keep the histogram of the trits,
and those within rows keep every row sum too: only a comparison with the same model in another format shows them.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tritgold.formats.rope_rows import interleaved_rows

Order = Callable[[np.ndarray], np.ndarray]
_NEAR = 2.0**-7  # twice the rounding of a scale to bfloat16


def _i_every_4(t: np.ndarray) -> np.ndarray:
    """Row s = 4a + b is the true row b * out / 4 + a."""
    return t.reshape(4, -1, t.shape[1]).swapaxes(0, 1).reshape(t.shape)


def _quarters(t: np.ndarray) -> np.ndarray:
    """Row b * out / 4 + a is the true row 4a + b."""
    return t.reshape(-1, 4, t.shape[1]).swapaxes(0, 1).reshape(t.shape)


def _64_as_128(t: np.ndarray) -> np.ndarray:
    """Position 32g + 16h + r of 128 is the true 64h + 16g + r."""
    return t.reshape(-1, 2, 4, 16).swapaxes(1, 2).reshape(t.shape)


def _128_as_64(t: np.ndarray) -> np.ndarray:
    """Position 64h + 16g + r of 128 is the true 32g + 16h + r."""
    return t.reshape(-1, 4, 2, 16).swapaxes(1, 2).reshape(t.shape)


def _msb(t: np.ndarray) -> np.ndarray:
    """Position 4p + s of 128 is the true 32s + p."""
    return t.reshape(-1, 4, 32).swapaxes(1, 2).reshape(t.shape)


def _lsb(t: np.ndarray) -> np.ndarray:
    """Position 4p + s of 128 is the true 32 (3 - s) + p."""
    return t.reshape(-1, 4, 32)[:, ::-1].swapaxes(1, 2).reshape(t.shape)


def _from_msb(t: np.ndarray) -> np.ndarray:
    """Position 32g + p of 128 is the true 4p + g."""
    return t.reshape(-1, 32, 4).swapaxes(1, 2).reshape(t.shape)


def _from_lsb(t: np.ndarray) -> np.ndarray:
    """Position 32g + p of 128 is the true 4p + 3 - g."""
    return t.reshape(-1, 32, 4)[:, :, ::-1].swapaxes(1, 2).reshape(t.shape)


def _reversed_quarters(t: np.ndarray) -> np.ndarray:
    """Position 32g + p of 128 is the true 32 (3 - g) + p."""
    return t.reshape(-1, 4, 32)[:, ::-1].reshape(t.shape)


def _4rows_as_128(t: np.ndarray) -> np.ndarray:
    """Position 32g + p of block B is column q % in of row 4 (q // in) + g, with q = 32B + p the byte."""
    by_byte = t.reshape(-1, 4, t.shape[1]).swapaxes(1, 2)
    return by_byte.reshape(-1, 32, 4).swapaxes(1, 2).reshape(t.shape)


def _128_as_4rows(t: np.ndarray) -> np.ndarray:
    """The inverse: column q % in of row 4 (q // in) + g is position 32g + p of block B."""
    by_byte = t.reshape(-1, 4, 32).swapaxes(1, 2)
    return by_byte.reshape(-1, t.shape[1], 4).swapaxes(1, 2).reshape(t.shape)


# Name and order, by what must be divisible: _ROWS needs out % 4 == 0, _BLOCKS and _SEQUENTIAL out * in % 128 == 0,
# _BOTH needs both.
_ROWS: tuple[tuple[str, Order], ...] = (
    ("rows unpacked as i::4, where the bytes hold quarters of the matrix", _i_every_4),
    ("rows in quarters of the matrix, where the twin has every fourth row", _quarters),
)
_BLOCKS: tuple[tuple[str, Order], ...] = (
    ("I2_S blocks of 128 read as 64: columns permuted inside every 128", _128_as_64),
    ("I2_S blocks of 64 read as 128: columns permuted inside every 128", _64_as_128),
    ("quarters of every 128 columns reversed, as between I2_S and TQ2_0", _reversed_quarters),
)
_SEQUENTIAL: tuple[tuple[str, Order], ...] = (
    ("I2_S read sequentially, least significant pair first", _lsb),
    ("I2_S read sequentially, most significant pair first", _msb),
    ("sequential bytes, least significant pair first, read as I2_S", _from_lsb),
    ("sequential bytes, most significant pair first, read as I2_S", _from_msb),
)
# TQ2_0 has its planes in the opposite order: least significant pair first in one type gives the same trits as most
# significant pair first in the other. Trits alone do not show which type the bytes had.
_OF_TQ2_0: tuple[tuple[str, Order], ...] = (
    ("TQ2_0 read as consecutive, least significant pair first, or I2_S, most significant pair first", _msb),
    ("TQ2_0 read as consecutive, most significant pair first, or I2_S, least significant pair first", _lsb),
    (
        "consecutive bytes, least significant pair first, read as TQ2_0, or most significant pair first, as I2_S",
        _from_msb,
    ),
    (
        "consecutive bytes, most significant pair first, read as TQ2_0, or least significant pair first, as I2_S",
        _from_lsb,
    ),
)
_BOTH: tuple[tuple[str, Order], ...] = (
    ("I2_S of four rows a byte read as blocks of 128", _4rows_as_128),
    ("I2_S blocks of 128 read as four rows a byte", _128_as_4rows),
)


def name_misreading(
    found: np.ndarray, truth: np.ndarray, head_dim: int | None = None, label: str | None = None
) -> str | None:
    """The misreading that turns ``truth`` into ``found``, both int8 trits [out, in]; None if no known one does.

    head_dim: for q and k, whose rows are in the order of interleaved RoPE in some files; None for other weights.
    label: the layout in which ``found`` was read, as ``fingerprint.label_of`` names it; None if unknown. It is needed
    because TQ2_0 read as consecutive gives the same trits as I2_S in the other order of pairs.

    Sources: the rows from an ad-hoc converter of HF bytes; 64 and 128 from bitnet.cpp on ARM (#470, #585), sequential
    order from larql #156 and WrinkleFree, consecutive TQ2_0 from llama.cpp #28769, RoPE from its LlamaModel.permute.

    >>> truth, found = np.zeros((2, 16, 128), np.int8); truth[5, 2] = 1; found[5, 4 * 2 + 3] = 1
    >>> name_misreading(found, truth), name_misreading(np.roll(truth, 1), truth)
    ('I2_S read sequentially, least significant pair first', None)
    """
    for name, order in _orders(truth.shape, head_dim, label):
        if np.array_equal(order(truth), found):
            return name
    if truth.any() and np.array_equal(-truth, found):
        return "every sign turned round"
    return None


def _orders(shape: tuple[int, ...], head_dim: int | None, label: str | None) -> Iterator[tuple[str, Order]]:
    rows, blocks = shape[0] % 4 == 0, shape[0] * shape[1] % 128 == 0
    if head_dim and shape[0] % head_dim == 0:
        order = interleaved_rows(shape[0], head_dim)
        yield (
            "rows in the order of interleaved RoPE, where this architecture has halves",
            lambda t: t[np.argsort(order)],
        )
        yield "rows in halves for RoPE, where this architecture has them interleaved", lambda t: t[order]
    if rows:
        yield from _ROWS
    if blocks:
        yield from _OF_TQ2_0 if label == "tq2_0" else _SEQUENTIAL
        yield from _BLOCKS
    if rows and blocks:
        yield from _BOTH


def name_scale_fault(found: float, truth: float) -> str | None:
    """What is wrong with a multiplying scale; None if the two differ only by rounding to bfloat16.

    >>> name_scale_fault(1.5, 1.5), name_scale_fault(0.667, 1.5), name_scale_fault(1.0, 1.5)
    (None, 'inverted: the two scales multiply to 1', 'left out: 1 in its place')
    >>> name_scale_fault(2.25, 1.5), name_scale_fault(-1.5, 1.5), name_scale_fault(3.0, 1.5)
    ('applied twice: the square of the scale', 'of the other sign', 'another scale: 2 times as large')
    """
    if _near(found, truth):
        return None
    if found == 1:
        return "left out: 1 in its place"
    if _near(found * truth, 1):
        return "inverted: the two scales multiply to 1"
    if _near(found, truth * truth):
        return "applied twice: the square of the scale"
    if _near(found, -truth):
        return "of the other sign"
    return f"another scale: {found / truth:.4g} times as large" if truth else "another scale, where the twin has 0"


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _NEAR * abs(b)
