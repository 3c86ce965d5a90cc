"""Fingerprint: which layouts the bytes of a tensor may have, which are impossible, and why.

A layout is ruled out only by facts in the file (length, span to the next tensor, shape, codes that are not a trit,
scales that are not finite), never by what seems likely: I2_S in blocks of 128 and of 64 weights has the same type
number, length, histogram and row sums. Where two layouts remain possible, other information must decide: a key of the
file, the user, or the same model in another format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.container import FLOAT_BYTES, StoredTensor
from tritgold.formats.ggml_types import tensor_bytes, type_names
from tritgold.formats.gguf_file import GgufFile, fills
from tritgold.formats.layouts import GGUF_TERNARY, Layouts
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing

# The tiles in microsoft/BitNet's setup_env.py and preset_kernels/. A custom build may have others.
PUBLISHED_TILES: dict[str, tuple[dict[str, int], ...]] = {
    "TL1": tuple(
        {"BM": BM, "BK": BK, "bm": bm}
        for BM, BK, bm in (
            *((256, 128, 32), (128, 64, 64), (160, 64, 32), (320, 128, 64), (320, 64, 32)),
            *((256, 128, 64), (128, 64, 32)),
        )
    ),
    "TL2": tuple({"BM": BM, "BK": BK} for BM, BK in ((256, 96), (128, 192), (160, 96), (320, 96), (128, 96))),
}
# Layouts of a safetensors file whose bytes each hold four columns. ``hf``, not in this list, holds four rows a byte.
_ALONG_COLUMNS: tuple[Packing, ...] = (
    packing("sglbitnt"),
    packing("sequential", order="lsb"),
    packing("sequential", order="msb"),
    packing("torchao"),
    packing("gpu_int2"),
)


@dataclass(frozen=True)
class Hypothesis:
    """The hypothesis that a tensor's bytes have a certain layout, and the verdict.

    label: the packing with its options, ``i2_s block=64``, or the name of a type that holds no trits. layout: None for
    such a type. shape: (out, in) of the trits. fits: whether it is possible. reason: why or why not, in words.
    """

    label: str
    layout: Packing | None
    shape: tuple[int, int]
    fits: bool
    reason: str


def label_of(layout: Packing) -> str:
    """The packing's name and its options, as one string.

    >>> label_of(packing("i2_s", block=64)), label_of(packing("hf"))
    ('i2_s block=64', 'hf')
    """
    return " ".join([layout.name, *(f"{key}={value}" for key, value in options_of(layout).items())])


def options_of(layout: Packing) -> dict[str, Any]:
    """The packing's options: ``packing(layout.name, **options)`` gives the same packing."""
    if not is_dataclass(layout):
        return {}
    found = {field.name: getattr(layout, field.name) for field in fields(layout)}
    return {name: value for name, value in found.items() if (name, value) != ("scales_of", "tensor")}


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a GGUF file. span: bytes from its first to the next tensor or the end of the file."""

    type_id: int
    architecture: str
    span: int
    alignment: int

    def fills(self, size: int) -> bool:
        """Whether a tensor of this size leaves only padding before the next tensor."""
        return fills(size, self.span, self.alignment)

    def holds(self, size: int, exactly: bool) -> bool:
        """Whether a tensor of this size is possible here. exactly: some type of this number fills the span, so a
        shorter one is ruled out; if no type fills it, the bytes after the tensor are a gap, which GGUF allows."""
        return self.fills(size) if exactly else size <= self.span


def places(file: GgufFile) -> dict[str, Place]:
    """The place of every tensor by name, from the offsets in the file."""
    return {
        name: Place(file.type_ids[name], file.architecture, file.spans[name], file.alignment) for name in file.tensors
    }


def gguf_hypotheses(
    tensor: StoredTensor, place: Place, tiles: Sequence[Mapping[str, int]] | None = None, code3_as_zero: bool = False
) -> list[Hypothesis]:
    """What a tensor [out, in] of a GGUF file may be: every layout of every type that has used its type number.

    tiles: options of TL1 and TL2 to try; None tries PUBLISHED_TILES, which are not all that exist (``is_open``).
    code3_as_zero: a code that is not a trit does not rule a layout out.
    """
    shape = tensor.shape[0], tensor.shape[1]
    names = type_names(place.type_id, place.architecture)
    exactly = any(place.fills(size) for name in names for size in _sizes(name, shape))
    found = []
    for name in names:
        layouts = _layouts_of(name, shape, PUBLISHED_TILES.get(name, ()) if tiles is None else tiles)
        if layouts:
            found += [_judged(layout, tensor, shape, code3_as_zero, place, exactly) for layout in layouts]
        else:
            found.append(_foreign(name, tensor, shape, place, exactly))
    return found


def is_open(dtype: str, tiles: Sequence[Mapping[str, int]] | None) -> bool:
    """Whether not all layouts can be listed: TL1 and TL2 with unknown tiles (``tiles`` None)."""
    return dtype in PUBLISHED_TILES and tiles is None


def uint8_hypotheses(
    tensor: StoredTensor, expected: tuple[int, int] | None = None, code3_as_zero: bool = False
) -> list[Hypothesis]:
    """What a matrix of bytes [R, C] in a safetensors file may be: 4R rows of C weights, or R rows of 4C.

    expected: (out, in) if known from a configuration or from the same model in another format.
    """
    rows, columns = tensor.shape
    four = (4 * rows, columns)
    if expected is not None and (-(-expected[0] // 4), expected[1]) == (rows, columns):
        four = expected  # where out is not a multiple of 4, the last bytes hold fewer than four rows
    shapes = [(packing("hf"), four), *((layout, (rows, 4 * columns)) for layout in _ALONG_COLUMNS)]
    return [_judged(layout, tensor, shape, code3_as_zero, expected=expected) for layout, shape in shapes]


def sglbitnt_hypotheses(
    tensor: StoredTensor, expected: tuple[int, int] | None = None, code3_as_zero: bool = False
) -> list[Hypothesis]:
    """What the bytes [out, in / 4] of an SGLBITNT file may be: the format has one layout only."""
    shape = tensor.shape[0], 4 * tensor.shape[1]
    return [_judged(packing("sglbitnt"), tensor, shape, code3_as_zero, expected=expected)]


def is_float(tensor: StoredTensor) -> bool:
    """Whether the tensor's dtype is F32, F16 or BF16: master weights, or trits times a scale."""
    return tensor.dtype in FLOAT_BYTES


def _layouts_of(dtype: str, shape: tuple[int, int], tiles: Sequence[Mapping[str, int]]) -> list[Packing]:
    """Every layout that files use for this type; empty for a type without trits."""
    if dtype == "I2_S":
        return [packing("i2_s", block=128), packing("i2_s", block=64), packing("i2_s_4rows")]
    if dtype == "Q2_0":
        return [packing("q2_0", block=64), packing("q2_0", block=128)]
    if dtype in PUBLISHED_TILES:
        return [packing(dtype.lower(), **tile) for tile in tiles]
    return [Layouts().packing(dtype, shape)] if dtype in GGUF_TERNARY else []


def _sizes(dtype: str, shape: tuple[int, int]) -> list[int]:
    """The sizes in bytes that a tensor of this type and shape may have."""
    blocks = (64, 128) if dtype == "Q2_0" else (64,)
    return [size for block in blocks if (size := tensor_bytes(dtype, shape, block)) is not None]


def _judged(
    layout: Packing,
    tensor: StoredTensor,
    shape: tuple[int, int],
    code3_as_zero: bool,
    place: Place | None = None,
    exactly: bool = True,
    expected: tuple[int, int] | None = None,
) -> Hypothesis:
    """The verdict on one layout: the cheapest checks first; the bytes are checked without copying them."""
    label = label_of(layout)

    def ruled_out(reason: str) -> Hypothesis:
        return Hypothesis(label, layout, shape, False, reason)

    if expected is not None and expected != shape:
        return ruled_out(f"would be {shape[0]} x {shape[1]} weights, and the model has {expected[0]} x {expected[1]}")
    try:
        size = layout.packed_size(shape)
    except PackingError as error:
        return ruled_out(f"cannot hold {shape[0]} x {shape[1]}: {error.expected}")
    if place is not None and not place.holds(size, exactly):
        return ruled_out(f"would be {size} bytes, and the next tensor begins after {place.span}")
    if size != tensor.data.size:
        # Two possible lengths differ by less than the padding: the reader chose the other one.
        return Hypothesis(label, layout, shape, place is not None, "the length fits; the bytes were not looked at")
    codes = "every code is a trit"
    try:
        layout.check(tensor.data, shape)
    except PackingError as error:
        message = error.message.removeprefix(f"{layout.name}: ")
        if not code3_as_zero or layout.invalid_kind != "code-3":
            return ruled_out(message)
        codes = f"{message}, read as 0 (code3_as_zero)"
    scales = layout.scales(tensor.data, shape)
    if not np.isfinite(scales).all():
        return ruled_out(f"a scale would be {scales[~np.isfinite(scales)].flat[0]}")
    odd = layout.odd_bytes(tensor.data, shape)
    unusual = f", though no encoder writes {odd} of the bytes" if odd else ""
    return Hypothesis(label, layout, shape, True, f"the length fits, {codes}{unusual}{_gap(size, place)}")


def _gap(size: int, place: Place | None) -> str:
    """The words for a tensor that does not fill its span; empty for one that does."""
    if place is None or place.fills(size):
        return ""
    return f"; {place.span - size} bytes after it are more than padding"


def _foreign(name: str, tensor: StoredTensor, shape: tuple[int, int], place: Place, exactly: bool) -> Hypothesis:
    """The verdict on a type that shares the number and holds no trits: only its length is compared."""
    size = tensor_bytes(name, tensor.shape)
    if size is None:
        return Hypothesis(name, None, shape, False, f"rows of {shape[1]} are not whole blocks of it")
    if not place.holds(size, exactly):
        reason = f"would be {size} bytes, and the next tensor begins after {place.span}"
        return Hypothesis(name, None, shape, False, reason)
    return Hypothesis(name, None, shape, True, f"the length fits; it holds no trits{_gap(size, place)}")
