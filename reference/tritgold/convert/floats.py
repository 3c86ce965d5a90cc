"""Float tensors to be written: unchanged, widened, or rounded if requested."""

from collections.abc import Iterator

import numpy as np

from tritgold.errors import ConversionError
from tritgold.formats.container import FLOAT_BYTES, PlannedTensor, StoredTensor
from tritgold.rounding import bf16_to_f32, f32_to_bf16

_ROWS = 4096  # rows at a time: 40 MB of float32 for hidden = 2560


def encode(values: np.ndarray, dtype: str) -> bytes:
    """float32 -> little-endian bytes of F32, F16 or BF16, rounded half to even; infinity beyond F16's range."""
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    if dtype == "BF16":
        return f32_to_bf16(values).astype("<u2").tobytes()
    with np.errstate(over="ignore"):
        return values.astype("<f2").tobytes()


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """The float32 values after ``encode`` and reading again."""
    if dtype == "BF16":
        return bf16_to_f32(f32_to_bf16(values))
    with np.errstate(over="ignore"):
        return values.astype({"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)


def narrowest(values: np.ndarray) -> str:
    """BF16 if it holds every value exactly, else F32.

    >>> narrowest(np.array([0.5, 3], np.float32)), narrowest(np.array([0.1], np.float32))
    ('BF16', 'F32')
    """
    return "BF16" if same_bits(rounded(values, "BF16"), values) else "F32"


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two float32 arrays are equal bit for bit: -0 is not 0, and a NaN equals itself."""
    return first.shape == second.shape and np.array_equal(first.view(np.uint32), second.view(np.uint32))


def planned(name: str, values: np.ndarray, dtype: str) -> PlannedTensor:
    """A small float32 array in memory as a tensor to be written."""
    data = encode(values, dtype)
    return PlannedTensor(name, dtype, values.shape, len(data), lambda: (data,))


def planned_matrix(name: str, matrix: StoredTensor, dtype: str) -> PlannedTensor:
    """A stored matrix to be written under another name and in ``dtype``, a few rows at a time."""

    def chunks() -> Iterator[bytes | memoryview]:
        for rows in row_slices(matrix):
            if dtype == matrix.dtype:
                yield matrix.data.reshape(matrix.shape[0], -1)[rows].reshape(-1).data
            else:
                yield encode(matrix.rows(rows), dtype)

    same = dtype == matrix.dtype
    size = matrix.data.nbytes if same else matrix.shape[0] * matrix.shape[1] * FLOAT_BYTES[dtype]
    return PlannedTensor(name, dtype, matrix.shape, size, chunks)


def row_slices(matrix: StoredTensor) -> Iterator[slice]:
    """The rows of a matrix, 4096 at a time; earlier rows are released from memory."""
    for row in range(0, matrix.shape[0], _ROWS):
        yield slice(row, row + _ROWS)
        matrix.release()


def matrix_dtype(matrix: StoredTensor, asked: str | None, widened: bool, blocks: bool = False) -> str:
    """The dtype of the embedding or head in the target.

    asked: F32, F16 or BF16, or None to keep the source's. widened: the source's container stores only float32, so its
    dtype means nothing: the narrowest exact one is used. blocks: whether the target's container has ggml's block
    types; if not, such a matrix becomes F32, which holds its values. Raises ConversionError ``float-overflow`` if a
    value is beyond the range of F16.
    """
    if asked is None:
        if matrix.dtype not in FLOAT_BYTES and not blocks:
            return "F32"
        if not widened:
            return matrix.dtype
        return "BF16" if all(narrowest(matrix.rows(rows)) == "BF16" for rows in row_slices(matrix)) else "F32"
    if asked == "F16" and matrix.dtype != "F16":
        for rows in row_slices(matrix):
            values = matrix.rows(rows)
            if not np.isfinite(rounded(values, asked)[np.isfinite(values)]).all():
                largest = float(np.abs(values[np.isfinite(values)]).max())
                raise ConversionError(
                    "a value is beyond float16",
                    kind="float-overflow",
                    file=matrix.file,
                    thing=f"tensor {matrix.name!r}",
                    got=largest,
                    expected="at most 65504",
                )
    return asked
