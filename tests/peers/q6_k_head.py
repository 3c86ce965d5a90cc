"""A GGUF file whose head is Q6_K, as llama-quantize writes it beside TQ1_0 and TQ2_0: for a head of its own, or the
embedding where they are tied.
"""

from pathlib import Path

import numpy as np

from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_split import open_gguf
from tritgold.formats.gguf_writer import write_gguf


def q6_k(rows: np.ndarray) -> np.ndarray:
    """float32 [rows, 256 n] -> uint8 [rows, 210 n]: a scale for 16 weights, by their largest."""
    groups = rows.astype(np.float32).reshape(-1, 16, 16)
    scale = np.abs(groups).max(axis=2) / 31
    d = (scale.max(axis=1, keepdims=True) / 127).astype("<f2")
    wide = d.astype(np.float32)
    steps = np.rint(np.divide(scale, wide, out=np.zeros_like(scale), where=wide > 0)).astype(np.int8)
    of = (wide * steps)[..., None]
    codes = np.clip(np.rint(np.divide(groups, of, out=np.zeros_like(groups), where=of > 0)), -32, 31).astype(np.int8)
    q = (codes + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # block, half, quarter, weight
    low, high = q & 15, q >> 4
    nibbles = np.concatenate([low[:, :, :2] | low[:, :, 2:] << 4], axis=2).reshape(-1, 128)
    pairs = (high << np.arange(0, 8, 2, dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8).reshape(-1, 64)
    blocks = np.concatenate([nibbles, pairs, steps.view(np.uint8), d.view(np.uint8)], axis=1)
    return blocks.reshape(len(rows), -1)


def with_q6_k_head(path: Path) -> Path:
    """The file again, its head in Q6_K."""
    file = open_gguf(path)
    head = "output.weight" if "output.weight" in file.tensors else "token_embd.weight"
    planned = []
    for tensor in file.tensors.values():
        data, dtype = tensor.data.tobytes(), tensor.dtype
        if tensor.name == head:
            data, dtype = q6_k(np.frombuffer(data, "<f4").reshape(tensor.shape)).tobytes(), "Q6_K"
        planned.append(PlannedTensor(tensor.name, dtype, tensor.shape, len(data), lambda data=data: [data]))
    write_gguf(path, dict(file.metadata), planned)
    return path
