"""Write a Hugging Face checkpoint folder: config.json, the weights, and text files (tokenizer and others)."""

import json
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.formats.container import PlannedTensor
from tritgold.formats.packings import packing
from tritgold.formats.safetensors_writer import write_safetensors
from tritgold.rounding import f32_to_bf16


def bf16_tensor(name: str, shape: tuple[int, ...], parts: Callable[[], Iterable[np.ndarray]]) -> PlannedTensor:
    """A tensor to be written in bf16, rounded half to even.

    parts: gives its float32 values in order, in pieces of any shape; called when the tensor is written.
    """

    def chunks() -> Iterator[bytes]:
        for values in parts():
            yield f32_to_bf16(values).tobytes()

    return PlannedTensor(name, "BF16", shape, 2 * prod(shape), chunks)


def packed_tensors(
    name: str, shape: tuple[int, int], trits: Callable[[], np.ndarray], scale: float | np.ndarray
) -> list[PlannedTensor]:
    """``<name>.weight`` (U8) and ``<name>.weight_scale`` (bf16 [1]) of a ternary linear.

    shape: (out, in). trits: gives int8 of that shape; called when they are written. scale: one number, as stored.
    """
    packed = (-(-shape[0] // 4), shape[1])
    value = np.asarray(scale, np.float32).reshape(1)
    return [
        PlannedTensor(f"{name}.weight", "U8", packed, prod(packed), lambda: [packing("hf").pack(trits())]),
        bf16_tensor(f"{name}.weight_scale", (1,), lambda: [value]),
    ]


def write_hf_folder(
    folder: Path, config: dict[str, Any], tensors: Iterable[PlannedTensor], texts: dict[str, str]
) -> None:
    """Write config.json, model.safetensors and ``texts`` (file name -> content) into an existing folder.

    To write a folder completely or not at all, use it inside ``written_folder``. Raises OutputError as
    ``write_safetensors`` does.
    """
    for name, text in {"config.json": json.dumps(config, indent=2) + "\n", **texts}.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
