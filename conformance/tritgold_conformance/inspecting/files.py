"""The input of ``tritgold inspect``: a container, opened before it is read as a model, and its linear weights."""

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.config import ModelConfig
from tritgold.errors import FormatError, TritgoldError, TritgoldWarning
from tritgold.formats.container import FLOAT_BYTES, StoredTensor, holes
from tritgold.formats.gguf_config import read_gguf_config
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_split import open_gguf, shard_paths
from tritgold.formats.hf_config import MOST_BYTES, read_hf_config
from tritgold.formats.layouts import GGUF_TERNARY, Layouts
from tritgold.formats.linear_readers import one_float
from tritgold.formats.names import GGUF, HF
from tritgold.formats.rope_rows import interleaved_rows
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.formats.safetensors_folder import SafetensorsFolder
from tritgold.formats.sglbitnt_config import read_sglbitnt_config
from tritgold.formats.sglbitnt_file import SglbitntFile, is_sglbitnt
from tritgold.formats.tensor_box import ROPE_FACTORS
from tritgold.formats.untrusted_text import parse_json, printable, read_text
from tritgold.weights import LINEARS

Opened = SafetensorsFolder | SafetensorsFile | GgufFile | SglbitntFile


@dataclass(frozen=True)
class ReadOptions:
    """The user's options. layouts: as for every command; its ``i2_s`` is None if not given."""

    layouts: Layouts
    linear_class: str | None = None
    ignore_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """model: None if it is refused or missing. shapes: (out, in) by the linear's name in a layer; for a refused model
    as many as its keys give. rule_known: whether the scale rule is stated. warned: warnings of the reader.
    """

    model: ModelConfig | None
    shapes: Mapping[str, tuple[int, int]]
    rule_known: bool
    warned: list[str]


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear weight as stored in a file.

    name: tritgold's name, ``layers.3.q``; the file's own name if it has no such name. shape: (out, in) by the
    configuration, None if unknown. beside: the scale that is stored outside the bytes, None without one. beside_bytes:
    the size of that scale. rows: stored row of each row of the model, for files that permute q and k.
    """

    name: str
    stored: StoredTensor
    shape: tuple[int, int] | None
    beside: np.float32 | None
    beside_bytes: int
    rows: np.ndarray | None


def require_written(path: Path) -> None:
    """Refuse a file with a hole (FormatError ``sparse``): an incomplete download, whose missing bytes read as zeros."""
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else shard_paths(path):
        try:
            found = holes(file)
        except OSError as error:
            raise FormatError(f"cannot be opened: {error}", kind="unreadable", file=file) from error
        if found:
            begin, end = found[0]
            raise FormatError(
                "was never written in places, which read as zeros and so as weights of -1",
                kind="sparse",
                file=file,
                got=f"{len(found)} {'holes' if len(found) > 1 else 'hole'}, the first of bytes {begin} to {end}",
                expected="a file written all through",
                hint="download it again; if its zeros are meant, copy it with cp --sparse=never",
            )


def open_container(path: Path, q2_0_block: int) -> tuple[Opened, str]:
    """The container and its description. For type 42 the block size that fits the spans, even if another was given."""
    if path.is_dir():
        return SafetensorsFolder(path), "safetensors folder"
    if path.suffix == ".safetensors":
        return SafetensorsFile(path), "safetensors file"
    if is_sglbitnt(path):
        sgl = SglbitntFile(path)
        dialect = {None: "", "optional": ", scales where there are any", "always": ", a scale field in every tensor"}
        return sgl, f"SGLBITNT version 1{dialect[sgl.dialect]}"
    try:
        file = open_gguf(path, q2_0_block)
    except FormatError as error:
        if error.kind != "type-42":
            raise
        file = open_gguf(path, 192 - q2_0_block)
    shards = f" in {count} shards" if (count := len({t.file for t in file.tensors.values()})) > 1 else ""
    return file, f"GGUF version {file.version}{shards}, architecture {printable(file.architecture) or 'not given'}"


def read_config(path: Path, file: Opened, options: ReadOptions) -> Configuration:
    """The configuration alone. If it is refused, opening the model gives the reason."""

    def read() -> tuple[ModelConfig | None, bool]:
        match file:
            case GgufFile():
                embedding, tied = file.tensors.get("token_embd.weight"), "output.weight" not in file.tensors
                if embedding is None:
                    return None, True
                rows, factors = embedding.shape[0], file.tensors.get(ROPE_FACTORS)
                return read_gguf_config(path, file.metadata, rows, tied, options.ignore_keys, factors), True
            case SglbitntFile():
                return read_sglbitnt_config(path, file.config, options.ignore_keys), True
            case SafetensorsFolder():
                found = read_hf_config(path / "config.json", options.linear_class, options.ignore_keys)
                return found.model, found.mode is not None
        return None, False

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TritgoldWarning)
        try:
            model, rule_known = read()
        except TritgoldError:
            model, rule_known = None, False
    shapes = {name: model.linear_shape(name) for name in LINEARS} if model else _shapes_of_refused(path, file)
    texts = [str(w.message) for w in said if issubclass(w.category, TritgoldWarning)]
    return Configuration(model, shapes, rule_known, texts)


def _shapes_of_refused(path: Path, file: Opened) -> dict[str, tuple[int, int]]:
    """Shapes from the size keys of a Hugging Face configuration, even if other keys are not supported."""
    values: Any = file.config if isinstance(file, SglbitntFile) else None
    if isinstance(file, SafetensorsFolder):
        with suppress(OSError, ValueError, FormatError):
            values = parse_json(read_text(path / "config.json", MOST_BYTES))
    sizes: dict[str, Any] = values if isinstance(values, dict) else {}
    known = [sizes.get(k) for k in ("hidden_size", "intermediate_size", "num_attention_heads")]
    if not all(map(_is_size, known)):
        return {}
    hidden, inter, heads = cast(list[int], known)
    head_dim, kv_heads = sizes.get("head_dim") or hidden // heads, sizes.get("num_key_value_heads") or heads
    if not (_is_size(head_dim) and _is_size(kv_heads)):
        return {}
    q, kv = (heads * head_dim, hidden), (kv_heads * head_dim, hidden)
    gate, down = (inter, hidden), (hidden, inter)
    return {"q": q, "k": kv, "v": kv, "o": (hidden, q[0]), "gate": gate, "up": gate, "down": down}


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def linears(file: Opened, configuration: Configuration) -> list[Linear]:
    """Every tensor with the name of a linear weight, and every other tensor that may contain packed bytes."""
    table, suffix = (GGUF, ".scale") if isinstance(file, GgufFile) else (HF, ".weight_scale")
    ours = _our_names(table)
    found = []
    for name, tensor in file.tensors.items():
        known = ours(name)
        if len(tensor.shape) != 2 or not (known or _looks_packed(tensor, file)):
            continue
        beside = file.tensors.get(name.removesuffix(".weight") + suffix)
        scale, size = (None, 0) if beside is None else (one_float(beside), int(beside.data.size))
        if isinstance(file, SglbitntFile) and name in file.scales:
            scale, size = file.scales[name], 4
        shape = configuration.shapes.get(known.rpartition(".")[2]) if known else None
        rows = _rows(file, known, tensor, configuration.model)
        found.append(Linear(known or name, tensor, shape, scale, size, rows))
    return found


def _our_names(table: Mapping[str, tuple[str, ...]]) -> Callable[[str], str | None]:
    patterns = [
        (re.compile(re.escape(source).replace(re.escape("{n}"), "([0-9]+)")), what)
        for what in LINEARS
        for source in table[f"layers.{{n}}.{what}"]
    ]

    def ours(name: str) -> str | None:
        matches = ((pattern.fullmatch(name), what) for pattern, what in patterns)
        return next((f"layers.{match[1]}.{what}" for match, what in matches if match), None)

    return ours


def _looks_packed(tensor: StoredTensor, file: Opened) -> bool:
    """Whether a tensor of an unknown name may hold trits: in GGUF every ternary type, else 8-bit integers."""
    if isinstance(file, GgufFile):
        return tensor.dtype in GGUF_TERNARY and tensor.dtype not in FLOAT_BYTES
    return tensor.dtype in ("U8", "I8")


def _rows(file: Opened, name: str | None, tensor: StoredTensor, config: ModelConfig | None) -> np.ndarray | None:
    if not isinstance(file, GgufFile) or config is None or name is None or not name.endswith((".q", ".k")):
        return None
    permuted = GGUF_ARCHITECTURES[file.architecture].permuted and tensor.shape[0] % config.head_dim == 0
    return interleaved_rows(tensor.shape[0], config.head_dim) if permuted else None
