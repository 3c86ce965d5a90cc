"""A small model as quantisers leave it: what is recorded, and the same made again by llama.cpp's, live.

    python tests/peers/quantised.py PEERS_PYTHON [IK_LLAMA_QUANTIZE]    # writes the files of recorded/ again

recorded/llama-quantize-tq2_0.gguf is by llama.cpp's ``llama_model_quantize`` (``llama_cpp_quantize.py``), and
llama-quantize-tq2_0.safetensors holds what llama.cpp computes with it; ik-llama-quantize-<type>.gguf are by the program
llama-quantize of ik_llama.cpp 8337e4c. All were made of ``source`` in F32, whose linears are trits times a scale.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from engine_files import write_engine_file
from light_cases import HERE, RECORDED, RefusedError, llama_cpp, log_probabilities
from safetensors.numpy import save_file
from small_models import llama_like

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden.seeded import Shape
from tritgold.layers.q8_k import quantize_q8_k
from tritgold.ternary import DenseMatrix
from tritgold_conformance.golden.run import judging_tokens

# llama.cpp's ternary types need rows of 256, those of ik_llama.cpp of 64.
WIDE = Shape(seed=31, hidden=256, inter=256, layers=1, heads=4, kv_heads=2, context=64)
NARROW = Shape(seed=31, hidden=64, inter=64, layers=1, heads=2, kv_heads=1, context=64)
IK_TYPES = ("IQ1_BN", "IQ2_BN", "IQ2_BN_R4")
TOKENS = judging_tokens(16, 256, WIDE.seed)


def source(folder: Path, shape: Shape) -> Checkpoint:
    """A Llama with a head of its own; each stored scale is a power of two, which float16 holds."""
    return open_checkpoint(llama_like(folder, shape).write(folder / "model"))


def in_f32(model: Checkpoint, folder: Path) -> Path:
    """What a quantiser is given."""
    return write_engine_file(folder / "f32.gguf", model, "llama", "F32")


def llama_quantize(python: str, file: Path, kind: str) -> Path:
    """The file quantised by llama.cpp; ``kind`` is one of its file types. RefusedError where its library is missing."""
    out = file.with_name(f"llama-quantize-{kind.lower()}.gguf")
    words = [python, str(HERE / "llama_cpp_quantize.py"), str(file), str(out), kind]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        raise RefusedError(done.stderr)
    assert done.returncode == 0, done.stderr
    return out


def q6_k_head(x: np.ndarray, head: DenseMatrix) -> np.ndarray:
    """Log-probabilities of a head in Q6_K, which ggml multiplies with activations in Q8_K."""
    codes, scale = quantize_q8_k(x)
    return log_probabilities((codes * np.repeat(scale, 256, axis=1)).astype(np.float32), head)


def main(python: str, ik_llama: str = "") -> None:
    """Make the recorded files again."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made = llama_quantize(python, in_f32(source(folder / "wide", WIDE), folder), "TQ2_0")
        (RECORDED / made.name).write_bytes(made.read_bytes())
        peer = llama_cpp(python, made, TOKENS)
        save_file({**peer, "logprobs": peer["logprobs"].astype(np.float32)}, RECORDED / f"{made.stem}.safetensors")
        narrow = in_f32(source(folder / "narrow", NARROW), folder)
        for kind in IK_TYPES if ik_llama else ():
            out = RECORDED / f"ik-llama-quantize-{kind.lower()}.gguf"
            subprocess.run([ik_llama, str(narrow), str(out), kind, "1"], capture_output=True, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
