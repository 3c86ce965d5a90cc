"""transformers and llama.cpp as engines: ``--engine transformers``, ``--engine llama.cpp``.

They run as programs (``programs/peer_program.py``) by the Python that TRITGOLD_PEERS_PYTHON names, or by this one where
it has them: torch is large, and llama.cpp aborts the process that holds it when it dislikes an input.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import EngineError, MissingDependencyError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_split import open_gguf, shard_paths
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.safetensors_file import SafetensorsFolder
from tritgold.modes import LLAMA_CPP_Q8_K
from tritgold_conformance.engines.command import CommandEngine
from tritgold_conformance.engines.transformers_names import our_names
from tritgold_conformance.policies import FLOAT32, Policy

PYTHON = "TRITGOLD_PEERS_PYTHON"
PROGRAM = Path(__file__).with_name("programs") / "peer_program.py"
NEEDS = {
    "transformers": ("torch", "transformers", "accelerate", "safetensors"),
    "llama.cpp": ("xllamacpp", "safetensors"),
}
NORMAL, CONTROL = 1, 3  # llama.cpp's token types
_MISSING = "import importlib.util as u, json, sys; print(json.dumps([n for n in sys.argv[1:] if not u.find_spec(n)]))"


class TransformersEngine(CommandEngine):
    """transformers with eager attention, one thread; in float32, or in what the policy says."""

    clock = "program"

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """Its modules' outputs, codes and scales, under our names."""
        shown = super().trace(tokens)
        ours = our_names(shown)
        return {ours[name]: array for name, array in shown.items()}


class LlamaCppEngine(CommandEngine):
    """llama.cpp through its own server, one thread; KV cache in float32 and no flash attention, or both as it comes.

    On ternary types it quantises activations by blocks of 256, which is a mode of its own.
    """

    mode = LLAMA_CPP_Q8_K.name
    clock = "program"


def open_transformers(
    checkpoint: Checkpoint, path: Path, seconds: float, policy: Policy = FLOAT32
) -> TransformersEngine:
    """On a Hugging Face folder as it is; of any other format, on what ``tritgold convert`` makes of it."""

    def opened(scratch: Path) -> Path:
        if isinstance(checkpoint.container, SafetensorsFolder):
            return path
        convert(checkpoint, scratch / "hf", "hf", Options())
        return scratch / "hf"

    arithmetic = policy.of("arithmetic")
    dtype = "float32" if arithmetic is None else {"bf16": "bfloat16", "f16": "float16"}[arithmetic.name]
    return TransformersEngine(_words("transformers", dtype), checkpoint, path, seconds, opened)


def open_llama_cpp(checkpoint: Checkpoint, path: Path, seconds: float, policy: Policy = FLOAT32) -> LlamaCppEngine:
    """On a GGUF file as it is; of any other format, on a TQ2_0 file, a BitNet of architecture ``bitnet``."""

    def opened(scratch: Path) -> Path:
        if isinstance(checkpoint.container, GgufFile):
            return shard_paths(path)[0]  # llama.cpp opens a split model by its first shard alone
        made = scratch / "model.gguf"
        architecture = "bitnet" if checkpoint.config.sub_norms else None
        convert(checkpoint, made, "tq2_0", Options(architecture=architecture, embedding="F32"))
        return with_plain_vocabulary(made, checkpoint)

    cache = "float32" if policy.of("cache") is None else "defaults"
    return LlamaCppEngine(_words("llama.cpp", cache), checkpoint, path, seconds, opened)


PEERS: dict[str, Callable[[Checkpoint, Path, float, Policy], CommandEngine]] = {
    "transformers": open_transformers,
    "llama.cpp": open_llama_cpp,
}


def with_plain_vocabulary(path: Path, checkpoint: Checkpoint) -> Path:
    """A GGUF file, written again with words for tokens: llama.cpp shows nothing where one is a part of a character."""
    file = open_gguf(path)
    kept = {key: value for key, value in file.metadata.items() if not key.startswith(("tokenizer.", "split."))}
    write_gguf(path, kept | plain_vocabulary(checkpoint), [_planned(tensor) for tensor in file.tensors.values()])
    return path


def _planned(tensor: StoredTensor) -> PlannedTensor:
    return PlannedTensor(tensor.name, tensor.dtype, tensor.shape, tensor.data.size, lambda: [tensor.data.tobytes()])


def plain_vocabulary(checkpoint: Checkpoint) -> dict[str, bool | str | list[str] | np.ndarray]:
    """The metadata of a tokenizer whose tokens are plain words."""
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


def _words(peer: str, precision: str) -> list[str]:
    """The command. precision: what follows the peer's name, see the program.

    Raises MissingDependencyError where the Python has not what the peer needs.
    """
    python, needs = os.environ.get(PYTHON) or sys.executable, NEEDS[peer]
    hint = f"pip install {' '.join(needs)}, or name a Python that has them in {PYTHON}"
    try:
        done = subprocess.run([python, "-c", _MISSING, *needs], capture_output=True, text=True, check=True, timeout=60)
        missing = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        what = f"{PYTHON} is not a Python: {error}"
        raise EngineError(what, kind="engine-load", thing=f"engine {peer}", got=python, hint=hint) from None
    if missing:
        what = f"{', '.join(missing)} not installed for {python}"
        raise MissingDependencyError(what, kind="missing-dependency", thing=f"engine {peer}", hint=hint)
    return [python, str(PROGRAM), f"{peer}:{precision}"]
