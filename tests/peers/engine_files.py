"""GGUF files that the light peers open, made of opened checkpoints: architectures, weight types, a vocabulary.

The packed bytes are the test's own builders' and gguf-py's, never those of the packings under test.
"""

from pathlib import Path

import gguf_bytes as g
import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from small_models import LINEARS, GgufModel, as_gguf

from tritgold.checkpoint import Checkpoint

NORMAL, CONTROL = 1, 3  # llama.cpp's token types


def write_engine_file(
    path: Path,
    checkpoint: Checkpoint,
    architecture: str,
    weights: str,
    embedding: str = "F32",
    permute: bool | None = None,
) -> Path:
    """The checkpoint as ``architecture`` with linear weights of this type (a ggml type's name).

    All hold the same trits; scales pass through float16, except I2_S's. permute: q and k rows in interleaved order;
    None does what the architecture asks, which is so for llama alone.
    """
    type_id = g.TYPE_I2_S if weights == "I2_S" else g.TYPE_TQ2_0
    model = as_gguf(checkpoint, architecture, type_id, architecture == "llama" if permute is None else permute)
    if weights not in ("I2_S", "TQ2_0"):
        for layer in range(checkpoint.config.layers):
            for name in LINEARS.values():
                recode(model, f"blk.{layer}.{name}.weight", GGMLQuantizationType[weights])
    for name in ("token_embd.weight", "output.weight"):
        if name in model.tensors and embedding != "F32":
            values = np.frombuffer(model.tensors[name].data, "<f4").reshape(model.tensors[name].shape)
            kind = GGMLQuantizationType[embedding]
            model.alter(name, type_id=int(kind), data=quantize(values, kind).tobytes())
    add_vocabulary(model, checkpoint)
    return model.write(path)


def recode(model: GgufModel, name: str, kind: GGMLQuantizationType) -> None:
    """A TQ2_0 tensor in another type."""
    tensor = model.tensors[name]
    rows, columns = tensor.shape
    packed = np.frombuffer(tensor.data, np.uint8).reshape(rows, columns // 256 * 66)
    values = dequantize(packed, GGMLQuantizationType.TQ2_0)
    model.alter(name, type_id=int(kind), data=quantize(values, kind).tobytes())


def add_vocabulary(model: GgufModel, checkpoint: Checkpoint) -> None:
    """Plain words for tokens: llama.cpp gives no log-probabilities where a token is part of a character."""
    config = checkpoint.config
    special = {config.bos, *config.eos}
    ids = range(config.vocab)
    model.set("tokenizer.ggml.model", g.STRING, "llama")
    model.set("tokenizer.ggml.pre", g.STRING, "default")
    arrays = {
        "tokens": (g.STRING, [f"t{i}" for i in ids]),
        "scores": (g.F32, [-float(i) for i in ids]),
        "token_type": (g.I32, [CONTROL if i in special else NORMAL for i in ids]),
    }
    for key, (item, values) in arrays.items():
        model.set(f"tokenizer.ggml.{key}", g.ARRAY, g.array(item, values))
    model.set("tokenizer.ggml.add_bos_token", g.BOOL, False)
