"""What ``tritgold inspect`` finds: the container first, then whether it is a model.

The container is looked at even where the model cannot be opened: a file of an unknown packing still shows what
it holds, and says why it is refused.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import TritgoldError
from tritgold.formats.container import Container, StoredTensor
from tritgold.formats.ggml_types import BITNET_FORK
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.safetensors_file import SafetensorsFile, SafetensorsFolder
from tritgold.formats.untrusted_text import printable


def inspect_model(
    path: Path, with_tensors: bool, linear_class: str | None, ignore_keys: tuple[str, ...]
) -> dict[str, Any]:
    """Facts as plain data. Raises the container's own FormatError where the bytes are unsound.

    ``problem`` is null, or the error with which the model is refused.
    """
    container, kind = _open_container(path)
    facts: dict[str, Any] = {
        "schema": "tritgold.inspection/1",
        "container": kind,
        "metadata": _metadata(container),
        "types": _types(container),
        "config": None,
        "weights": None,
        "problem": None,
    }
    if with_tensors:
        facts["tensors"] = [_tensor(tensor) for tensor in container.tensors.values()]
    try:
        checkpoint = open_checkpoint(path, linear_class, ignore_keys)
    except TritgoldError as error:
        return {**facts, "problem": error.as_dict()}
    facts["config"] = checkpoint.config.as_dict()
    facts["weights"] = _weights(checkpoint, with_tensors)
    return facts


def _open_container(path: Path) -> tuple[Container, str]:
    if path.is_dir():
        return SafetensorsFolder(path), "safetensors folder"
    if path.suffix == ".safetensors":
        return SafetensorsFile(path), "safetensors file"
    file = GgufFile(path)
    return file, f"GGUF version {file.version}, architecture {file.architecture or 'not given'}"


def _metadata(container: Container) -> dict[str, Any]:
    """What the container says besides tensors; long lists by their length alone."""
    found = getattr(container, "metadata", {})
    return {key: _short(value) for key, value in found.items()}


def _short(value: Any) -> Any:
    if isinstance(value, (list, np.ndarray)):
        return f"{len(value)} items"
    return value if isinstance(value, (int, float, bool)) and np.isfinite(value) else printable(value)


def _types(container: Container) -> dict[str, dict[str, int]]:
    """Counts and bytes by type; of a GGUF file with the type's number, which forks read differently."""
    ids = container.type_ids if isinstance(container, GgufFile) else {}
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name, tensor in container.tensors.items():
        shown = tensor.dtype
        if name in ids:
            fork = ", bitnet.cpp fork" if tensor.dtype in BITNET_FORK.values() else ""
            shown = f"{tensor.dtype} (type {ids[name]}{fork})"
        counts[shown] += 1
        sizes[shown] += int(tensor.data.size)
    return {dtype: {"tensors": counts[dtype], "bytes": sizes[dtype]} for dtype in sorted(counts)}


def _tensor(tensor: StoredTensor) -> dict[str, Any]:
    place = {"offset": tensor.offset, "bytes": int(tensor.data.size), "file": tensor.file.name}
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), **place}


def _weights(checkpoint: Checkpoint, by_tensor: bool) -> dict[str, Any]:
    """Ternary weights: how many, how they are distributed, and their scales."""
    rows = []
    total = np.zeros(3, np.int64)
    for name, weight in checkpoint.weights.linears():
        tensor = weight.ternary()
        histogram = np.array([(tensor.trits == trit).sum() for trit in (-1, 0, 1)])
        total += histogram
        rows.append(
            {"name": name, "shape": list(tensor.shape), "scale": float(tensor.scale), "trits": histogram.tolist()}
        )
    count = int(total.sum())
    stored = sum(int(t.data.size) for t in checkpoint.container.tensors.values() if t.dtype in ("U8", "I2_S", "TQ2_0"))
    scales = [row["scale"] for row in rows]
    return {
        "ternary": count,
        "histogram": dict(zip(("-1", "0", "+1"), total.tolist(), strict=True)),
        "bits_per_weight": round(8 * stored / count, 4) if stored else None,
        "scale_range": [min(scales), max(scales)],
        "linears": rows if by_tensor else None,
    }
