"""What peers open: the same trits in the format that is fastest there, plain words for tokens, any head.

Kept between runs beside the synthetic models.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import TritgoldWarning
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_metadata import default_architecture
from tritgold.formats.gguf_split import open_gguf
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.names import GGUF, written_name
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold_conformance.bench.peer_names import FORMATS, Peer
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.synthetic import Say, cache_folder
from tritgold_conformance.engines.peers import plain_vocabulary

PIECE = 1 << 22  # numbers of a head that are quantised in memory at once


class PeerFiles(NamedTuple):
    """Files of a peer: the timed model, and the model on which it is judged before; None: it is not judged."""

    timed: Path
    judged: Path | None


def for_llama_cpp(path: Path, name: str, peer: Peer, say: Say) -> Path:
    """The GGUF file of a peer: the checkpoint itself if it fits, or a conversion, written once.

    path: of the checkpoint; name: of the model.
    """
    if path.suffix == ".gguf" and peer.name == "llama.cpp" and peer.head == "f16":
        return path
    checkpoint = quietly_opened(path)
    target, _ = FORMATS[peer.name]
    architecture = default_architecture(checkpoint.config)
    if peer.name != "ik_llama.cpp":  # of the bitnet architectures all versions of the others know this one
        architecture = "bitnet" if checkpoint.config.sub_norms else "llama"
    kept = _kept(checkpoint, name, f"{peer.name}-{architecture}-{target}-{peer.head}.gguf")
    if not kept.is_file():
        say(f"converting {name} for {peer.label}")
        made = kept.with_name(f"{kept.stem}-plain.gguf")
        try:
            _converted(checkpoint, made, target, Options(architecture=architecture, embedding="F16", round_scales=True))
            _with_head(made, kept, peer.head, plain_vocabulary(checkpoint))
        finally:
            made.unlink(missing_ok=True)
    return kept


def for_transformers(path: Path, name: str, say: Say) -> Path:
    """A Hugging Face folder: the checkpoint itself if it is one, or a conversion, written once, without a tokenizer."""
    if path.is_dir():
        return path
    checkpoint = quietly_opened(path)
    folder = _kept(checkpoint, name, "hf")
    if not folder.is_dir():
        say(f"converting {name} for transformers")
        _converted(checkpoint, folder, "hf", Options(embedding="BF16"))
    return folder


def _kept(checkpoint: Checkpoint, name: str, what: str) -> Path:
    """Where a conversion is kept between runs; two files of one name are two models."""
    return cache_folder() / f"{name}-{checkpoint.model_hash()[:8]}-{what}"


def _converted(checkpoint: Checkpoint, path: Path, target: str, options: Options) -> None:
    _forget_words(checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)  # that they run SiLU changes no time
        convert(checkpoint, path, target, options)


def _forget_words(checkpoint: Checkpoint) -> None:
    """Remove the tokenizer of a GGUF source: it is not needed, and without merges it could not be converted."""
    if isinstance(checkpoint.container, GgufFile):
        keys = checkpoint.container.metadata
        for key in [key for key in keys if key.startswith("tokenizer.") and not key.endswith("_id")]:
            del keys[key]


def _with_head(made: Path, kept: Path, head: str, vocabulary: dict[str, Any]) -> None:
    """Write the file ``made`` again with this vocabulary, and with embedding and head in the type ``head``."""
    file = open_gguf(made)
    metadata = {key: value for key, value in file.metadata.items() if not key.startswith(("tokenizer.", "split."))}
    heads = {written_name(GGUF, name) for name in ("embedding", "head")} if head != "f16" else set()
    tensors = [_quantised(t, head) if t.name in heads else _same(t) for t in file.tensors.values()]
    write_gguf(kept, metadata | vocabulary, tensors)


def _same(tensor: StoredTensor) -> PlannedTensor:
    return PlannedTensor(tensor.name, tensor.dtype, tensor.shape, tensor.data.size, lambda: [tensor.data.tobytes()])


def _quantised(tensor: StoredTensor, head: str) -> PlannedTensor:
    """Float16 [rows, columns] in blocks of 32: ggml's ``quantize_row_*_ref``, as a KV cache has them too."""
    scheme: Any = kv_scheme(head, **({"kernel": "reference"} if head == "q8_0" else {}))
    size = prod(tensor.shape) // 32 * scheme.block_bytes

    def pieces() -> Iterator[bytes]:
        values = tensor.data.view("<f2")
        for first in range(0, values.size, PIECE):
            yield scheme.pack(values[first : first + PIECE].astype(np.float32).reshape(-1, 32)).tobytes()

    return PlannedTensor(tensor.name, head.upper(), tensor.shape, size, partial(pieces))
