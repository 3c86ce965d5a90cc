"""Writing a Hugging Face checkpoint folder: config.json, model.safetensors, whatever text files go with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.formats.packing import packing
from tritgold.formats.safetensors_file import Entries, Entry, write_safetensors
from tritgold.rounding import f32_to_bf16


def bf16_entry(values: np.ndarray) -> Entry:
    """float32 -> a bf16 tensor, rounded half to even."""
    return Entry("BF16", values.shape, f32_to_bf16(values).tobytes())


def packed_entries(name: str, trits: np.ndarray, scale: np.ndarray) -> Entries:
    """``<name>.weight`` (U8) and ``<name>.weight_scale`` (bf16 [1]) of a ternary linear."""
    rows, columns = trits.shape
    packed = Entry("U8", (-(-rows // 4), columns), packing("hf").pack(trits))
    return {f"{name}.weight": packed, f"{name}.weight_scale": bf16_entry(np.asarray(scale, np.float32).reshape(1))}


def write_hf_folder(folder: Path, config: dict[str, Any], entries: Entries, texts: dict[str, str]) -> None:
    """Write config.json, model.safetensors and ``texts`` (file name -> content) into an existing folder."""
    for name, text in {"config.json": json.dumps(config, indent=2) + "\n", **texts}.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_safetensors(folder / "model.safetensors", entries, {"format": "pt"})
