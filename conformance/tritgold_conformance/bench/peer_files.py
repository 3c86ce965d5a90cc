"""What llama.cpp and its forks open: the same trits in the engine's best format, plain words for tokens, any head.

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
    """What a peer opens: the model that is timed, and the one on which it is judged before, None for neither."""

    timed: Path
    judged: Path | None


def for_llama_cpp(path: Path, name: str, peer: Peer, say: Say) -> Path:
    """The GGUF file of a peer: the checkpoint itself where it is one that fits, or a conversion, written once.

    path: of the checkpoint; name: of the model. Two files of one name are two models.
    """
    fits = path.suffix == ".gguf" and peer.name == "llama.cpp" and peer.head == "f16"
    if fits:
        return path
    checkpoint = quietly_opened(path)
    target, _ = FORMATS[peer.name]
    kept = cache_folder() / f"{name}-{checkpoint.model_hash()[:8]}-{peer.name}-{target}-{peer.head}.gguf"
    if kept.is_file():
        return kept
    _forget_words(checkpoint)
    say(f"converting {name} for {peer.label}")
    sub_norms = checkpoint.config.sub_norms
    architecture = ("bitnet" if sub_norms else "llama") if peer.name == "llama.cpp" else None
    options = Options(
        architecture=architecture or default_architecture(checkpoint.config), embedding="F16", round_scales=True
    )
    made = kept.with_name(f"{kept.stem}-plain.gguf")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TritgoldWarning)  # that llama.cpp runs SiLU changes no time
            convert(checkpoint, made, target, options)
        _with_head(made, kept, peer.head, plain_vocabulary(checkpoint))
    finally:
        made.unlink(missing_ok=True)
    return kept


def _forget_words(checkpoint: Checkpoint) -> None:
    """A GGUF source's tokenizer, which is replaced anyway: a vocabulary of plain words has no merges to convert."""
    if isinstance(checkpoint.container, GgufFile):
        keys = checkpoint.container.metadata
        for key in [key for key in keys if key.startswith("tokenizer.") and not key.endswith("_id")]:
            del keys[key]


def _with_head(made: Path, kept: Path, head: str, vocabulary: dict[str, Any]) -> None:
    """The file again with these words for tokens, embedding and head as ``head`` says."""
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
