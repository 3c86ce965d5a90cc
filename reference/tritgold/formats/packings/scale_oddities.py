"""What is valid but unusual about the scales of a tensor, in words, for warnings and `tritgold inspect`."""

import numpy as np

from tritgold.ternary import TernaryTensor


def odd_scales(tensor: TernaryTensor) -> list[str]:
    """In words, what is valid but unusual about the scales of a tensor: a negative one, a 0 for non-zero trits.

    >>> odd_scales(TernaryTensor(np.array([[1, 0]], np.int8), np.asarray(np.float32(0))))
    ['a scale of 0 silences trits that are not 0']
    """
    scale, said = tensor.scale, []
    if (scale < 0).any():
        said.append(f"negative scale {scale.min()}: legal, yet no quantiser writes it")
    blocks = tensor.trits.reshape(tensor.shape[0], scale.shape[1], -1) if scale.ndim else tensor.trits
    if (scale == 0).any() and ((scale == 0) & blocks.any(axis=2 if scale.ndim else None)).any():
        said.append("a scale of 0 silences trits that are not 0")
    return said


def odd_rows(tensor: TernaryTensor) -> str | None:
    """In words, what is unusual about the row scales of a model's weight; TriLM has a few, each for a block of rows.

    >>> tensor = TernaryTensor(np.ones((64, 2), np.int8), np.arange(64, dtype=np.float32)[:, None])
    >>> odd_rows(tensor)[:45]
    '64 scales in 64 rows, some for a row or two: '
    """
    if tensor.scale.ndim == 0:
        return None
    scales = tensor.scale[tensor.trits.any(axis=1), 0]
    ends = np.flatnonzero(scales[1:] != scales[:-1])
    runs = np.diff([-1, *ends.tolist(), len(scales) - 1])
    if not ends.size or runs.min() > max(2, len(scales) // 64):
        return None
    return (
        f"{np.unique(scales).size} scales in {len(scales)} rows, some for a row or two: one of them is damaged, or a"
        " quantiser of row maxima was given masters that were not made ternary first"
    )
