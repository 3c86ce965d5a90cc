"""GGUF files that the light peers open, made of opened checkpoints by ``tritgold.convert``: what users would make.

The control whose q and k rows lie in the wrong order is built by hand, for the converter does not write such a file.
"""

import warnings
from pathlib import Path

import gguf_bytes as g
import numpy as np
from small_models import as_gguf

from tritgold.checkpoint import Checkpoint
from tritgold.convert import Options, convert
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf

NORMAL, CONTROL = 1, 3  # llama.cpp's token types


def write_engine_file(
    path: Path, checkpoint: Checkpoint, architecture: str, weights: str, embedding: str = "F32"
) -> Path:
    """The checkpoint as ``architecture`` with linear weights of this type (a ggml type's name), and a plain vocabulary.

    Scales pass through float16, except those of I2_S and F32.
    """
    to = {"F32": "gguf-f32", "F16": "gguf-f16"}.get(weights, weights.lower())
    options = Options(architecture=architecture, embedding=embedding, round_scales=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="llama.cpp runs SiLU")  # which pytritium does not, and tests judge
        convert(checkpoint, path, to, options)
    file = GgufFile(path)
    kept = {key: value for key, value in file.metadata.items() if not key.startswith("tokenizer.")}
    tensors = [
        PlannedTensor(t.name, t.dtype, t.shape, t.data.size, lambda data=t.data: [data.tobytes()])
        for t in file.tensors.values()
    ]
    write_gguf(path, kept | plain_vocabulary(checkpoint), tensors)
    return path


def plain_vocabulary(checkpoint: Checkpoint) -> dict[str, bool | str | list[str] | np.ndarray]:
    """Plain words for tokens: llama.cpp gives no log-probabilities where a token is part of a character."""
    config = checkpoint.config
    special = {config.bos, *config.eos}
    ids = range(config.vocab)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [f"t{i}" for i in ids],
        "tokenizer.ggml.scores": np.array([-float(i) for i in ids], np.float32),
        "tokenizer.ggml.token_type": np.array([CONTROL if i in special else NORMAL for i in ids], np.int32),
        "tokenizer.ggml.add_bos_token": False,
    }


def write_unpermuted_file(path: Path, checkpoint: Checkpoint) -> Path:
    """Architecture llama, TQ2_0, its q and k rows in the order of Hugging Face: loads, and runs wrongly."""
    model = as_gguf(checkpoint, "llama", g.TYPE_TQ2_0, permute=False)
    for key, value in plain_vocabulary(checkpoint).items():
        if isinstance(value, np.ndarray):
            item = g.F32 if value.dtype == np.float32 else g.I32
            model.set(key, g.ARRAY, g.array(item, value.tolist()))
        elif isinstance(value, list):
            model.set(key, g.ARRAY, g.array(g.STRING, value))
        else:
            model.set(key, g.BOOL if isinstance(value, bool) else g.STRING, value)
    return model.write(path)
