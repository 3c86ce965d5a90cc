"""transformers and llama.cpp as engines: ``--engine transformers``, ``--engine llama.cpp``.

They run as programs (``programs/peer_program.py``) with the Python that TRITGOLD_PEERS_PYTHON names, or with this one
if it has their packages: torch is large, and llama.cpp aborts its whole process for some inputs.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import EngineError, MissingDependencyError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_split import open_gguf, shard_paths
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.safetensors_folder import SafetensorsFolder
from tritgold.modes import LLAMA_CPP_Q8_K
from tritgold.trace_names import TRACE_NAMES
from tritgold_conformance.engines.command import CommandEngine
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
    """llama.cpp through its own server, one thread; KV cache in float32 without flash attention, or its defaults.

    On ternary types it quantises activations in blocks of 256, which is a separate mode.
    """

    mode = LLAMA_CPP_Q8_K.name
    clock = "program"


def open_transformers(
    checkpoint: Checkpoint, path: Path, seconds: float, policy: Policy = FLOAT32
) -> TransformersEngine:
    """On a Hugging Face folder as it is; any other format is first converted, as by ``tritgold convert``."""

    def opened(scratch: Path) -> Path:
        if isinstance(checkpoint.container, SafetensorsFolder):
            return path
        convert(checkpoint, scratch / "hf", "hf", Options())
        return scratch / "hf"

    arithmetic = policy.of("arithmetic")
    dtype = "float32" if arithmetic is None else {"bf16": "bfloat16", "f16": "float16"}[arithmetic.name]
    return TransformersEngine(_words("transformers", dtype), checkpoint, path, seconds, opened)


def open_llama_cpp(checkpoint: Checkpoint, path: Path, seconds: float, policy: Policy = FLOAT32) -> LlamaCppEngine:
    """On a GGUF file as it is; any other format is first converted to TQ2_0, a BitNet with architecture ``bitnet``."""

    def opened(scratch: Path) -> Path:
        if isinstance(checkpoint.container, GgufFile):
            return shard_paths(path)[0]  # llama.cpp opens a split model only by its first shard
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
    """Rewrite a GGUF file with words as tokens: llama.cpp shows no log-probabilities for parts of characters."""
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
    """The command. precision: the part after the peer's name, see ``peer_program.py``.

    Raises MissingDependencyError if the peer's packages are not installed for that Python, EngineError
    (``engine-load``) if TRITGOLD_PEERS_PYTHON is not a Python.
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


# ---- names of transformers' modules ---------------------------------------------------------------------------------


def _table() -> dict[str, str]:
    """transformers' name -> trace name, for outputs of modules and for codes and scales of their inputs."""
    names = {}
    for ours, theirs in TRACE_NAMES.items():
        module, _, side = theirs.hf.partition(" ")
        what = ours.rpartition(".")[2]
        if what in ("codes", "scale"):
            names[f"{module}.{what}"] = ours
        elif side == "output" and what != "probs":  # probs are the module's second output, which no hook records
            names[f"{module}.output"] = ours
    return names


_OURS = _table()


# Gemma 3 norms the output of attention, under the name that other models give to the norm before the FFN.
_GEMMA = {
    "model.layers.{n}.post_attention_layernorm.output": "layers.{n}.attn_post_norm",
    "model.layers.{n}.pre_feedforward_layernorm.output": "layers.{n}.ffn_norm",
}


def our_names(names: Iterable[str]) -> dict[str, str]:
    """``transformers_peer.Recorder``'s name -> trace name. Raises KeyError for a name that the table does not have."""
    names = list(names)
    table = {**_OURS, **_GEMMA} if any("pre_feedforward_layernorm" in name for name in names) else _OURS
    return {name: our_name(name, table) for name in names}


def our_name(name: str, table: Mapping[str, str] | None = None) -> str:
    """The trace name of one, by default with the table of all models but Gemma.

    >>> our_name("model.layers.12.mlp.down_proj.codes"), our_name("model.norm.output")
    ('layers.12.down_in.codes', 'final_norm')
    """
    pattern, layer = _pattern(name)
    return (table or _OURS)[pattern].replace("{n}", layer)


def is_recorded(ours: str) -> bool:
    """Whether the recorder records an array of this trace name."""
    return _pattern(ours)[0] in (*_OURS.values(), *_GEMMA.values())


def _pattern(name: str) -> tuple[str, str]:
    """``layers.12.x`` -> (``layers.{n}.x``, ``12``)."""
    found = re.search(r"(?<=layers\.)\d+", name)
    return (name, "") if found is None else (name[: found.start()] + "{n}" + name[found.end() :], found[0])
