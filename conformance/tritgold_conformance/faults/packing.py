"""Faults of reading packed bytes: one layout taken for another, made by packing trits and reading the bytes wrongly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.tq1_0 import BYTES as TQ1_BYTES
from tritgold.formats.packings.tq1_0 import PARTS, to_digits
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LayerWeights
from tritgold_conformance.faults.fault import KEPT, Change, Fault, Subject, Witness, linears, with_weights

# The formats whose reading can be wrong, by the names that ``unpack`` has for them.
FORMATS: dict[str, Packing] = {
    "hf": packing("hf"),
    "i2_s": packing("i2_s"),
    "i2_s-64": packing("i2_s", block=64),
    "tq1_0": packing("tq1_0"),
    "tq2_0": packing("tq2_0"),
    "tl1": packing("tl1", BM=128, BK=64, bm=32),
    "tl2": packing("tl2", BM=128, BK=96),
}
REMEMBERED = 1 << 23  # trits that a fault remembers having misread: the embedded models have 5 million
Codes = Callable[[bytes, tuple[int, int]], np.ndarray]  # the format's bytes, (out, in) -> codes uint8 [out, in]


def _codes_of(layout: Packing, written: Packing) -> Codes:
    """The payload of one layout read as another; a trailer that the other has and this one not is zeros."""

    def codes(data: bytes, shape: tuple[int, int]) -> np.ndarray:
        payload = written.payload(data, shape).tobytes()
        return layout.codes(payload + bytes(layout.packed_size(shape) - len(payload)), shape)

    return codes


def _reading(name: str, codes: Codes) -> Change:
    """Tensors and files of the format read wrongly. A tensor that the format cannot hold keeps its trits.

    The model's weights are written in the format first: what is wrong is the reading alone.
    """
    layout = FORMATS[name]
    misread_trits = _Newest(lambda trits: _trits(codes(layout.pack(trits), trits.shape)))

    def misread(_: str, t: TernaryTensor) -> TernaryTensor:
        return TernaryTensor(misread_trits(t.trits), t.scale)

    def fits(shape: tuple[int, int]) -> bool:
        try:
            codes(layout.pack(np.zeros(shape, np.int8)), shape)
        except (PackingError, ValueError):
            return False
        return True

    weights = linears(misread, _remembered(fits))

    def change(s: Subject) -> Subject | None:
        before = s.unpack

        def unpack(format_name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
            if format_name != name:
                return before(format_name, data, shape) if before else None
            return _dense(_values(codes(data, shape)), layout.scales(data, shape))

        changed = weights(s)
        return replace(changed or s, unpack=unpack)

    return change


class _Newest:
    """A function of trits that remembers what it made of the newest small ones: packing is dearer than a product."""

    def __init__(self, make: Callable[[np.ndarray], np.ndarray]) -> None:
        self._make = make
        # By identity; the source is kept beside it, so that no other array can have its place in memory.
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, trits: np.ndarray) -> np.ndarray:
        source, made = self._known.get(id(trits), (None, None))
        if source is not trits or made is None:
            made = self._make(trits)
            if trits.size <= KEPT:
                self._known[id(trits)] = (trits, made)
                while sum(kept.size for _, kept in self._known.values()) > REMEMBERED:
                    del self._known[next(iter(self._known))]
        return made


def _remembered(fits: Callable[[tuple[int, int]], bool]) -> Callable[[tuple[int, int]], bool]:
    known: dict[tuple[int, int], bool] = {}

    def remembered(shape: tuple[int, int]) -> bool:
        if shape not in known:
            known[shape] = fits(shape)
        return known[shape]

    return remembered


def _values(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.int8) - np.int8(1)


def _trits(codes: np.ndarray) -> np.ndarray:
    return np.clip(_values(codes), -1, 1)


def _dense(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """float32; values may be 2 where code 3 was read as one."""
    wide = scale if scale.ndim == 0 else np.repeat(scale, values.shape[1] // scale.shape[1], axis=1)
    return values.astype(np.float32) * wide


def _misread(name: str, layout: Packing) -> Change:
    return _reading(name, _codes_of(layout, FORMATS[name]))


def _mapped(name: str, table: list[int]) -> Change:
    """Codes through a table of four."""
    layout = FORMATS[name]
    return _reading(name, lambda data, shape: np.array(table, np.uint8)[layout.codes(data, shape)])


def _digits_low_to_high(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    """TQ1_0: digit n of a byte stands where digit 4 - n does."""
    blocks = np.frombuffer(data, np.uint8).reshape(-1, TQ1_BYTES)
    parts = [to_digits(blocks[:, at : at + size], n)[:, ::-1].reshape(len(blocks), -1) for _, at, n, size in PARTS]
    return np.concatenate(parts, axis=1).reshape(shape)


def _rows_of_four(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    """HF: byte (r, c) holds rows 4r .. 4r + 3."""
    codes = FORMATS["hf"].codes(data, shape)
    if shape[0] % 4:
        raise ValueError("no whole bytes")
    return np.ascontiguousarray(codes.reshape(4, -1, shape[1]).swapaxes(0, 1)).reshape(shape)


def _columns_of_four(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    """HF: the bytes lie [out, in / 4], quarters of a row in a byte."""
    if shape[1] % 4 or shape[0] % 4:
        raise ValueError("no whole bytes")
    packed = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
    return np.concatenate([(packed >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)


def _reversed_bits(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    """The two bits of a pair change places: codes 1 and 2 do."""
    return np.array([0, 2, 1, 3], np.uint8)[FORMATS["hf"].codes(data, shape)]


def _joined_before_unpacking(names: tuple[str, ...]) -> Change:
    """HF: the bytes of several projections are laid one behind the other and unpacked as one matrix."""

    def joined(layer: LayerWeights) -> dict[str, Any] | None:
        tensors = [layer.linear(name).ternary() for name in names]
        rows = [t.shape[0] for t in tensors]
        if any(n % 4 for n in rows):
            return None
        hf, width = FORMATS["hf"], tensors[0].shape[1]
        whole = _values(hf.codes(b"".join(hf.pack(t.trits) for t in tensors), (sum(rows), width)))
        parts = np.split(whole, np.cumsum(rows)[:-1])
        split = zip(names, parts, tensors, strict=True)
        return {name: InMemoryTernary(TernaryTensor(part, t.scale)) for name, part, t in split}

    def change(s: Subject) -> Subject | None:
        found = [joined(layer) for layer in s.checkpoint.weights.layers]
        layers = [
            replace(layer, **changes)
            for layer, changes in zip(s.checkpoint.weights.layers, found, strict=True)
            if changes
        ]
        return with_weights(s, layers=tuple(layers)) if len(layers) == len(found) else None

    return change


def _transposed(s: Subject) -> Subject | None:
    return linears(lambda _, t: TernaryTensor(t.trits.T.copy(), t.scale), lambda shape: shape[0] == shape[1])(s)


_LSB, _MSB = packing("sequential"), packing("sequential", order="msb")
_OPERATIONS, _FILES = Witness("operations"), Witness("files")

FAULTS = (
    Fault(
        "i2s-128-as-64", "packing", "I2_S blocks of 128 weights in 32 bytes are read as 64 in 16.",
        "one character repeated; row sums and histograms right",
        _misread("i2_s", packing("i2_s", block=64)), _OPERATIONS, ("microsoft/BitNet #585, #586",),
    ),
    Fault(
        "i2s-64-as-128", "packing", "I2_S blocks of 64 weights in 16 bytes are read as 128 in 32.",
        "one character repeated; row sums and histograms right",
        _misread("i2_s-64", packing("i2_s")), _OPERATIONS, ("microsoft/BitNet #470",),
    ),
    Fault(
        "i2s-in-order-lsb", "packing", "I2_S is read as four consecutive weights a byte, least significant first.",
        "confident nonsense",
        _misread("i2_s", _LSB), _OPERATIONS, ("chrishayuk/larql #156",),
    ),
    Fault(
        "i2s-in-order-msb", "packing", "I2_S is read as four consecutive weights a byte, most significant first.",
        "confident nonsense",
        _misread("i2_s", _MSB), _OPERATIONS, ("chrishayuk/larql #156",),
    ),
    Fault(
        "i2s-four-rows", "packing", "I2_S is read as one column of four rows a byte.", "babble; row sums wrong too",
        _misread("i2_s", packing("i2_s_4rows")), _OPERATIONS,
    ),
    Fault(
        "hf-rows-interleaved", "packing", "HF bytes are unpacked to rows 4r .. 4r + 3, where they hold quarters.",
        "babble; every histogram and every row sum right",
        _reading("hf", _rows_of_four), _OPERATIONS,
    ),
    Fault(
        "hf-along-columns", "packing", "HF bytes are unpacked along the columns.", "babble",
        _reading("hf", _columns_of_four), _OPERATIONS,
    ),
    Fault(
        "tq2-in-order-lsb", "packing", "TQ2_0 is read as four consecutive weights a byte, least significant first.",
        "plausible and wrong; the same trits as I2_S in order, most significant first",
        _misread("tq2_0", _LSB), _FILES, ("ggml-org/llama.cpp #28769",),
    ),
    Fault(
        "tq2-in-order-msb", "packing", "TQ2_0 is read as four consecutive weights a byte, most significant first.",
        "plausible and wrong; the same trits as I2_S in order, least significant first",
        _misread("tq2_0", _MSB), _FILES, ("ggml-org/llama.cpp #28769",),
    ),
    Fault(
        "tq1-digits-low-to-high", "packing", "The base-3 digits of TQ1_0 are read from the least significant on.",
        "babble; row sums right",
        _reading("tq1_0", _digits_low_to_high), _OPERATIONS,
    ),
    Fault(
        "bit-pairs-reversed", "packing", "The two bits of a code are read the wrong way round: 0 and +1 change places.",
        "too many +1", _reading("hf", _reversed_bits), _OPERATIONS,
    ),
    Fault(
        "code-3-is-plus-2", "packing", "Code 3, which stands for no trit, is read as +2.",
        "files with dirty padding differ between backends",
        _mapped("i2_s", [0, 1, 2, 3]), _FILES, ("1bit-MONSTER/1bit-MONSTER #131",), ("trits",),
    ),
    Fault(
        "code-3-is-0", "packing", "Code 3, which stands for no trit, is read as 0.",
        "files with dirty padding differ between backends",
        _mapped("i2_s", [0, 1, 2, 1]), _FILES, ("1bit-MONSTER/1bit-MONSTER #131",), ("trits",),
    ),
    Fault(
        "codes-off-by-one", "packing", "Codes 0, 1, 2 are taken for 0, +1, -1.", "all sums wrong, nothing overflows",
        _mapped("hf", [1, 2, 0, 1]), _OPERATIONS, ("chrishayuk/larql #156",),
    ),
    Fault(
        "sign-flipped", "packing", "Codes 0, 1, 2 are taken for +1, 0, -1.", "every sum negated",
        _mapped("hf", [2, 1, 0, 3]), _OPERATIONS,
    ),
    Fault(
        "qkv-joined-before-unpacking", "packing", "The bytes of q, k and v are joined, then unpacked as one matrix.",
        "babble; rows of q among those of k and v",
        _joined_before_unpacking(("q", "k", "v")), _OPERATIONS,
    ),
    Fault(
        "gate-up-joined-before-unpacking", "packing", "The bytes of gate and up are joined, then unpacked as one.",
        "attention right, FFN babble",
        _joined_before_unpacking(("gate", "up")), _OPERATIONS,
    ),
    Fault(
        "tl1-tiles-of-another-model", "packing", "TL1 is read with the tile sizes of another model.", "garbage",
        _misread("tl1", packing("tl1", BM=64, BK=128, bm=32)), _OPERATIONS, ("microsoft/BitNet #550, #268",),
    ),
    Fault(
        "tl2-tiles-of-another-model", "packing", "TL2 is read with the tile sizes of another model.", "garbage",
        _misread("tl2", packing("tl2", BM=64, BK=96)), _OPERATIONS, ("microsoft/BitNet #550, #268",),
    ),
    Fault(
        "square-weights-transposed", "packing", "Square matrices are used transposed.",
        "o, and q where it is square, are wrong; the shapes of the others show such a mistake",
        _transposed, _OPERATIONS,
    ),
)  # fmt: skip
