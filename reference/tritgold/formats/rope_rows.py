"""The order of the rows of q and k for RoPE: two halves in the model, interleaved in some GGUF architectures.

Source: llama.cpp ``convert_hf_to_gguf.py`` (LlamaModel.permute).
"""

import numpy as np


def interleaved_rows(rows: int, head_dim: int) -> np.ndarray:
    """Index in the file of row j of q or k, for a file permuted for interleaved RoPE: int64 [rows].

    llama.cpp's converters move row i of a head's first half to 2 i, and of its second half to 2 i + 1, so that
    the pairs (i, i + half) become neighbours.

    >>> interleaved_rows(8, 4).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    head, within = np.divmod(np.arange(rows), head_dim)
    second, i = np.divmod(within, head_dim // 2)
    return head * head_dim + 2 * i + second
