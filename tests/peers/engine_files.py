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
from tritgold_conformance.engines.peers import plain_vocabulary, with_plain_vocabulary


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
    return with_plain_vocabulary(path, checkpoint)


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
