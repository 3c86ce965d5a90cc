"""Readers of linear weights, one per container: a function (box, name, shape) -> weight; problems go to the box."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.config import ModelConfig, ScaleRule
from tritgold.errors import ConfigError, PackingError
from tritgold.formats.container import FLOAT_BYTES, StoredTensor
from tritgold.formats.hf_config import QuantizationMode
from tritgold.formats.layouts import GGUF_TERNARY, Layouts
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.rope_rows import interleaved_rows
from tritgold.formats.stored_weights import MasterWeight, PackedWeight
from tritgold.formats.tensor_box import TensorBox
from tritgold.formats.untrusted_text import printable

Stored = PackedWeight | MasterWeight
_MOST_SCALES = 16  # one per device of tensor parallelism; ordinary weights have hundreds of magnitudes
_ROWS = 64  # rows read at once: most matrices are decided after the first 64
LinearReader = Callable[[TensorBox, str, tuple[int, int]], Stored | None]


def hf_reader(mode: QuantizationMode | None, rule: ScaleRule, layouts: Layouts, quantize: bool) -> LinearReader:
    """A reader for Hugging Face folders. Offline: U8 [ceil(out / 4), in] with a ``weight_scale``. Online: a float
    master [out, in], no scale.

    mode None: config.json states neither; then floats that are trits times one scale are read as ternary.
    quantize: read other float weights as masters.
    """

    def read(box: TensorBox, name: str, shape: tuple[int, int]) -> Stored | None:
        tensor = box.take(name)
        if tensor is None:
            return None
        if mode == "online":
            return _master(box, tensor, shape)
        if mode is None and tensor.dtype in FLOAT_BYTES:
            return _floats(box, tensor, shape, quantize)
        _require_mode(mode, tensor)
        packed = (-(-shape[0] // 4), shape[1])
        scale = box.take_beside(tensor, ".weight_scale")
        if tensor.dtype != "U8" or tensor.shape != packed:
            found = f"{tensor.dtype} {list(tensor.shape)}"
            floats = tensor.dtype in FLOAT_BYTES and scale is None
            what = f"{tensor.name}: found {found}, expected packed U8 {list(packed)}"
            if floats:
                what += "; masters have quantization_mode online, trits times a scale no quantization_config"
            box.blame("tensor-shape", what)
            if floats:
                return None
        if scale is None:
            box.blame("scale-missing", f"{tensor.name}: packed, but without a weight_scale; 1 is never assumed")
            return None
        value = _scalar(box, scale)
        if value == 0 and rule == "divide":
            box.blame("scale-zero", f"{scale.name}: found 0, and the weights are divided by it")
        if value is None:
            return None
        return PackedWeight(packing("hf"), tensor, shape, value, code3_as_zero=layouts.code3_as_zero)

    return read


def gguf_reader(config: ModelConfig, architecture: str, layouts: Layouts, quantize: bool) -> LinearReader:
    """A reader for GGUF: a ternary type with its scale inside; an optional tensor ``.scale`` multiplies that scale
    (llama.cpp's architecture ``bitnet``).

    quantize: read F32, F16 and BF16 that are not trits times one scale as masters.
    """

    def read(box: TensorBox, name: str, shape: tuple[int, int]) -> Stored | None:
        tensor = box.take(name, shape)
        if tensor is None:
            return None
        beside = box.take_beside(tensor, ".scale")
        if tensor.dtype not in GGUF_TERNARY:
            supported = " or ".join(GGUF_TERNARY)
            box.blame("weight-dtype", f"{tensor.name}: found {tensor.dtype}, expected a ternary type: {supported}")
            return None
        scale = None if beside is None else _scalar(box, beside)
        rows = None
        if GGUF_ARCHITECTURES[architecture].permuted and name.endswith((".q", ".k")):
            rows = interleaved_rows(shape[0], config.head_dim)
        floats = tensor.dtype in FLOAT_BYTES and not _is_ternary(tensor, shape)
        if floats and scales_by_rows(tensor) > 1:
            return PackedWeight(_by_rows(tensor), tensor, shape, scale, rows).checked()
        if floats and _several(box, tensor, shape):
            return None
        if quantize and floats:
            if beside is not None:
                box.blame(
                    "scale-unused", f"{beside.name}: a master that is quantised by absmean has no scale beside it"
                )
            return MasterWeight(tensor, rows)
        try:
            layout = layouts.packing(tensor.dtype, shape)
        except PackingError as error:
            box.blame(error.kind, f"{tensor.name}: {error}")
            return None
        weight = PackedWeight(layout, tensor, shape, scale, rows, layouts.code3_as_zero)
        return weight.checked() if tensor.dtype in FLOAT_BYTES and not floats else weight

    return read


def sglbitnt_reader(scales: Mapping[str, np.float32], layouts: Layouts) -> LinearReader:
    """A reader for SGLBITNT: U8 [out, in / 4] with the scale in the tensor's header; a tensor ``weight_scale``, if
    there is one, must be equal to it.
    """

    def read(box: TensorBox, name: str, shape: tuple[int, int]) -> Stored | None:
        tensor = box.take(name)
        if tensor is None:
            return None
        beside = box.take_beside(tensor, ".weight_scale")
        packed = (shape[0], shape[1] // 4)
        if tensor.dtype != "U8" or tensor.shape != packed or shape[1] % 128:
            found = f"{tensor.dtype} {list(tensor.shape)}"
            expected = (
                f"packed U8 {list(packed)}" if shape[1] % 128 == 0 else f"rows of 128s, not of {shape[1]} weights"
            )
            box.blame("tensor-shape", f"{tensor.name}: found {found}, expected {expected}")
            return None
        scale = scales.get(tensor.name)
        if scale is None:
            box.blame("scale-missing", f"{tensor.name}: packed, but without a scale; 1 is never assumed")
            return None
        if beside is not None and (value := _scalar(box, beside)) not in (None, scale):
            box.blame("scale-mismatch", f"{beside.name}: found {value}, expected {scale}, which is in the header")
        return PackedWeight(packing("sglbitnt"), tensor, shape, scale, code3_as_zero=layouts.code3_as_zero)

    return read


def _floats(box: TensorBox, tensor: StoredTensor, shape: tuple[int, int], quantize: bool) -> Stored | None:
    """Float weights: ternary if they are trits times a scale (TriLM unpacked, Falcon-E in bfloat16), else a master."""
    if tensor.shape != shape:
        found = f"{tensor.dtype} {list(tensor.shape)}"
        box.blame("tensor-shape", f"{tensor.name}: found {found}, expected floats {list(shape)}")
        return None
    if _is_ternary(tensor, shape):
        return PackedWeight(packing(tensor.dtype.lower()), tensor, shape).checked()
    if scales_by_rows(tensor) > 1:
        return PackedWeight(_by_rows(tensor), tensor, shape).checked()
    if _several(box, tensor, shape):
        return None
    if not quantize:
        _require_mode(None, tensor)
    return MasterWeight(tensor)


def _by_rows(tensor: StoredTensor) -> Packing:
    """The packing for trits times one scale per row: TriLM, which has one scale per block of rows."""
    return packing(tensor.dtype.lower(), scales_of="rows")


def _several(box: TensorBox, tensor: StoredTensor, shape: tuple[int, int]) -> bool:
    """Whether floats are trits times a few scales that are not per row; then a problem is noted in the box.

    Tensor parallelism leaves such weights in o and down, one scale per shard of columns; absmean would change them.
    """
    found: set[float] = set()
    for magnitudes in _magnitudes(tensor):
        found.update(np.unique(magnitudes).tolist())
        if len(found - {0.0}) > _MOST_SCALES:
            return False
    scales = sorted(found - {0.0})
    if len(scales) < 2:
        return False
    what = f"trits times {len(scales)} scales, {scales[0]:.6g} to {scales[-1]:.6g}, which are not those of rows"
    box.blame(
        "several-scales", f"{tensor.name}: {what}; the arithmetic has one a row, and --quantize would change them"
    )
    return True


def scales_by_rows(tensor: StoredTensor) -> int:
    """The number of different scales of a float matrix if each row is trits times one scale; 0 if not.

    A row with fewer than two non-zero weights proves nothing; 0 if at least half of the rows are like that.
    Ordinary weights are recognised after the first rows.
    """
    if len(tensor.shape) != 2:
        return 0
    found: set[float] = set()
    speaking = 0
    for magnitudes in _magnitudes(tensor):
        largest = magnitudes.max(axis=1, keepdims=True)
        if not np.isfinite(largest).all() or ((magnitudes != 0) & (magnitudes != largest)).any():
            return 0
        speaking += int(((magnitudes != 0).sum(axis=1) > 1).sum())
        found.update(largest[largest > 0].tolist())
    return len(found) if 2 * speaking > tensor.shape[0] else 0


def _magnitudes(tensor: StoredTensor) -> Iterator[np.ndarray]:
    """A float matrix without its signs, some rows at a time; its pages stay, for the check that comes after."""
    for row in range(0, tensor.shape[0], _ROWS):
        yield np.abs(tensor.rows(np.arange(row, min(row + _ROWS, tensor.shape[0]))))


def _is_ternary(tensor: StoredTensor, shape: tuple[int, int]) -> bool:
    """Whether float weights are already trits times one scale; absmean would compute a different scale."""
    try:
        packing(tensor.dtype.lower()).check(tensor.data, shape)
    except PackingError:
        return False
    return True


def _require_mode(mode: QuantizationMode | None, tensor: StoredTensor) -> None:
    if mode is not None:
        return
    ternary = tensor.dtype == "U8"
    raise ConfigError(
        "no quantization_config, yet the weights are packed"
        if ternary
        else "no quantization_config: not a ternary model",
        kind="quantization-missing",
        file=tensor.file.with_name("config.json"),
        thing=printable(f"tensor {tensor.name!r}"),
        got=tensor.dtype,
        hint="say whether its scales multiply or divide: --linear-class autobitlinear (2B-4T) or bitlinear (Falcon, "
        "Llama3-8B-1.58); guessing is wrong by the square of every scale"
        if ternary
        else None,
    )


def _master(box: TensorBox, tensor: StoredTensor, shape: tuple[int, int]) -> Stored | None:
    if tensor.dtype in FLOAT_BYTES and tensor.shape == shape:
        return MasterWeight(tensor)
    found = f"{tensor.dtype} {list(tensor.shape)}"
    box.blame("tensor-shape", f"{tensor.name}: found {found}, expected a float master {list(shape)} (online mode)")
    return None


def one_float(tensor: StoredTensor) -> np.float32 | None:
    """The value of a float tensor with one element ([], [1] or [1, 1]); None for any other tensor."""
    if tensor.dtype not in FLOAT_BYTES or tensor.data.size != FLOAT_BYTES[tensor.dtype]:
        return None
    value: np.float32 = tensor.floats().reshape(-1)[0]
    return value


def _scalar(box: TensorBox, tensor: StoredTensor) -> np.float32 | None:
    """A scale that is one finite float; None, with a problem noted in the box, if it is not."""
    value = one_float(tensor)
    if value is None:
        found = f"{tensor.dtype} {list(tensor.shape)}"
        box.blame("scale-shape", f"{tensor.name}: found {found}, expected one float ([], [1] or [1, 1])")
        return None
    if not np.isfinite(value):
        box.blame("scale-non-finite", f"{tensor.name}: found {value}, expected a finite scale")
        return None
    return value
