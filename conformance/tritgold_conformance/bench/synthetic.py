"""Synthetic models: random trits of a named shape, written once as a GGUF file that every engine opens.

A real file instead of arrays in memory, so that loading is measured too, and other engines run the same weights:
architecture ``bitnet`` or ``llama``, TQ2_0 linears, an F16 embedding, plain words for tokens. One piece of a
tensor is in memory at a time. Scales and embedding are numbers that float16 and bfloat16 both hold, so the model is
the same in every format it may be converted to.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from math import prod
from pathlib import Path

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.counter_random import random_bits
from tritgold.errors import OutputError, TritgoldError, TritgoldWarning
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_metadata import gguf_metadata
from tritgold.formats.gguf_writer import Value, write_gguf
from tritgold.formats.names import GGUF, written_name
from tritgold.formats.packings import packing
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold.weights import LINEARS, VECTORS
from tritgold_conformance.bench.memory import require_disk
from tritgold_conformance.bench.shapes import ModelShape

VERSION = 1  # of the random numbers: another version gives other file names
PIECE = 1 << 22  # weights that are unpacked in memory at once
FILE_TYPE = 37  # llama.cpp's MOSTLY_TQ2_0
NORMAL, CONTROL = 1, 3  # llama.cpp's token types
_DRAWN = ("embedding", "head", "final_norm", *VECTORS, *LINEARS)
Say = Callable[[str], None]


def cache_folder() -> Path:
    """XDG_CACHE_HOME/tritgold/bench, created if it does not exist.

    Raises OutputError: ``unwritable``; ``no-folder`` if the user has no home.
    """
    hint = "set XDG_CACHE_HOME to a folder that can be written"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tritgold" / "bench"
    except RuntimeError as error:
        raise OutputError("the user has no home folder", kind="no-folder", thing="cache", hint=hint) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made: {error.strerror}", kind="unwritable", file=folder, hint=hint) from error
    return folder


def synthetic_model(shape: ModelShape, folder: Path, say: Say = lambda _: None) -> Path:
    """The file of this shape, written if it does not exist yet or the existing file is incomplete.

    Raises OutputError: ``disk-full`` before anything is written, and those of the writer.
    """
    path = folder / f"{shape.name}-{_digest(shape)}.gguf"
    if not _usable(path, shape):
        say(f"writing the {shape.name} model, {model_bytes(shape) / 1e9:.2f} GB")
        require_disk(folder, model_bytes(shape))
        write_gguf(path, _metadata(shape), planned_tensors(shape))
    return path


def model_bytes(shape: ModelShape) -> int:
    """Bytes of all tensors."""
    return sum(tensor.size for tensor in planned_tensors(shape))


def planned_tensors(shape: ModelShape) -> list[PlannedTensor]:
    """In the order of the file. Nothing is drawn before it is written."""
    config, tensors = shape.config(), []
    names = ["embedding"] if shape.tied_head else ["embedding", "head"]
    tensors += [_matrix(name, config, shape) for name in names]
    for index in range(shape.layers):
        at = f"layers.{index}"
        tensors += [_gain(f"{at}.{name}", width, shape.seed) for name, width in config.vector_widths().items()]
        tensors += [_linear(f"{at}.{name}", config.linear_shape(name), shape.seed) for name in LINEARS]
    return [*tensors, _gain("final_norm", config.hidden, shape.seed)]


def _digest(shape: ModelShape) -> str:
    drawn = {name: value for name, value in asdict(shape).items() if (name, value) != ("embedding", 0.7)}
    return hashlib.sha256(repr((VERSION, sorted(drawn.items()))).encode()).hexdigest()[:8]


def _usable(path: Path, shape: ModelShape) -> bool:
    """Whether the file exists and opens as this model. A file that a killed program left has another name."""
    if not path.is_file():
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TritgoldWarning)
            return open_checkpoint(path).config == shape.config()
    except TritgoldError:
        return False


def _metadata(shape: ModelShape) -> dict[str, Value]:
    ids = range(shape.vocab)
    kinds = np.full(shape.vocab, NORMAL, np.int32)
    kinds[:3] = (2, CONTROL, CONTROL)  # unknown, BOS, EOS
    vocabulary: dict[str, Value] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *(f"t{i}" for i in ids[3:])],
        "tokenizer.ggml.scores": -np.arange(shape.vocab, dtype=np.float32),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.add_bos_token": False,
    }
    return gguf_metadata(shape.config(), shape.architecture, shape.name, FILE_TYPE) | vocabulary


def _linear(name: str, size: tuple[int, int], seed: int) -> PlannedTensor:
    """Trits with shares of 5, 6 and 5 in 16, as absmean gives for bell-shaped weights; scales of about 3 / sqrt(in)."""
    layout, stream = packing("tq2_0"), _stream(name)
    scale = _both_halves(np.array((2.5 + (stream >> 40) % 97 / 97) / np.sqrt(size[1]), np.float32))

    def chunks() -> Iterator[bytes]:
        for rows in _pieces(size):
            count = (rows.stop - rows.start) * size[1]
            yield layout.pack(trits(seed, stream + rows.start * size[1] // 16, count).reshape(-1, size[1]), scale)

    return PlannedTensor(written_name(GGUF, name), "TQ2_0", size, layout.packed_size(size), chunks)


def trits(seed: int, begin: int, count: int) -> np.ndarray:
    """int8 [count], from the random words ``begin`` and up, sixteen to a word. count: a multiple of 16."""
    words = random_bits(seed, np.arange(begin, begin + count // 16, dtype=np.uint64)).view(np.uint8)
    lots = np.empty((words.size, 2), np.uint8)
    lots[:, 0], lots[:, 1] = words & 15, words >> 4
    return np.repeat(np.array([-1, 0, 1], np.int8), [5, 6, 5])[lots].reshape(-1)


def _matrix(name: str, config: ModelConfig, shape: ModelShape) -> PlannedTensor:
    """Float16, about normal with the shape's standard deviation: eight random bytes summed."""
    size, stream = (config.vocab, config.hidden), _stream(name)

    def chunks() -> Iterator[bytes]:
        for rows in _pieces(size):
            first, last = rows.start * size[1], rows.stop * size[1]
            words = random_bits(shape.seed, np.arange(stream + first, stream + last, dtype=np.uint64))
            total = words.view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.int32)
            values = (total - 1020).astype(np.float32) * np.float32(shape.embedding / 209.0)
            yield _both_halves(values).astype("<f2").tobytes()

    return PlannedTensor(written_name(GGUF, name), "F16", size, 2 * prod(size), chunks)


def _gain(name: str, width: int, seed: int) -> PlannedTensor:
    bits = random_bits(seed, np.arange(_stream(name), _stream(name) + width, dtype=np.uint64)) >> np.uint64(40)
    values = _both_halves(np.float32(0.8) + bits.astype(np.float32) * np.float32(0.4 * 2**-24))
    data = values.astype("<f4").tobytes()
    return PlannedTensor(written_name(GGUF, name), "F32", (width,), len(data), lambda: [data])


def _both_halves(values: np.ndarray) -> np.ndarray:
    """float32 rounded to eight significant bits: exact in bfloat16 and float16. Below 2**-14 it becomes 0."""
    rounded = bf16_to_f32(f32_to_bf16(np.asarray(values, np.float32)))
    return np.where(np.abs(rounded) < np.float32(2**-14), np.float32(0), rounded)


def _stream(name: str) -> int:
    """Where a tensor's random numbers begin: 2**40 apart for any two. A cut model has the same first layers."""
    _, layer, what = name.split(".") if name.startswith("layers.") else ("", "-1", name)
    return (16 * (int(layer) + 1) + _DRAWN.index(what)) << 40


def _pieces(size: tuple[int, int]) -> Iterator[slice]:
    """Rows of about PIECE weights at a time."""
    step = max(1, PIECE // size[1])
    return (slice(row, min(row + step, size[0])) for row in range(0, size[0], step))
