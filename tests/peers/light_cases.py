"""Models that the light peers run, what they made of them, and the judgement; for the recorded and the live tests.

    python light_cases.py PEERS_PYTHON    # writes recorded/ again

recorded/<case>.safetensors holds llama.cpp's tokens, logprobs [tokens, vocab] and greedy continuation, pytritium.json
the next token at each position and the continuation; the models come from seeds and are made where they are needed.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from engine_files import write_engine_file
from safetensors.numpy import save_file
from small_models import llama_like

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ScaleRule
from tritgold.counter_random import random_bits
from tritgold.decode.autoregressive import greedy
from tritgold.formats.rope_formulas import rope_scaling
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Q8_K_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold_conformance.comparing.logits import LogitsVerdict, judge_logits
from tritgold_conformance.golden.run import GoldenRun, judging_tokens

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
NEW_TOKENS = 12
# The server computes a probability in float32 and reports its logarithm: below e**-87 it is subnormal, then 0.
FLOOR = -80.0


@dataclass(frozen=True)
class Case:
    """A seeded model in one architecture and weight type. Both architectures run SiLU in llama.cpp."""

    architecture: str
    weights: str
    seed: int

    @property
    def name(self) -> str:
        """Also the name of its recording."""
        return f"{self.architecture}-{self.weights.lower()}-{self.seed}"


# Looked for among 25 seeds: in 2, 17 (bitnet) and 9 (llama) an int8 code falls on the other side of a tie in float32.
CASES = [
    Case("bitnet", "F32", 1),
    Case("bitnet", "TQ2_0", 1),
    Case("bitnet", "TQ2_0", 2),
    Case("bitnet", "TQ1_0", 17),
    Case("llama", "F32", 3),
    Case("llama", "TQ2_0", 4),
    Case("llama", "TQ1_0", 9),
]
# Live alone: the further architectures that llama.cpp runs, and scaled RoPE beyond the original context.
FURTHER = [
    Case("qwen2", "TQ2_0", 21),
    Case("qwen3", "TQ2_0", 22),
    Case("gemma3", "TQ2_0", 23),
    Case("granite", "TQ2_0", 24),
    Case("minicpm", "TQ2_0", 25),
    Case("llama", "TQ2_0", 26),
]

# For pytritium: squared ReLU, and tokens of the kjv-ar tokenizer or plain bytes.
SQUARED_RELU = {
    "kjv-ar": [0, 1144, 262, 2042, 390, 283, 556, 286],
    **{f"seeded-{seed}": judging_tokens(20, 256, seed) for seed in (1, 2, 3)},
}


def model_of(case: Case, folder: Path) -> Checkpoint:
    """bitnet: sub-norms, tied, its squared ReLU replaced by SiLU. llama: no sub-norms, a head of its own."""
    if case.architecture == "llama":
        return open_checkpoint(llama_like(folder, _shape(case.seed)).write(folder / "model"))
    return with_silu(squared_relu_model(f"seeded-{case.seed}", folder))


def further_model(case: Case, folder: Path) -> Checkpoint:
    """The llama of the case with the parts of its architecture, drawn from the seed."""
    plain = open_checkpoint(llama_like(folder, _shape(case.seed)).write(folder / "model"))
    entry, fields = GGUF_ARCHITECTURES[case.architecture], {**GGUF_ARCHITECTURES[case.architecture].fields()}
    more: dict[str, Any] = {
        "gemma3": {
            **{"activation": "gelu_tanh", "window": 6, "full_layers": (), "local_rope_theta": 1e4},
            **{"embedding_scale": 16.0, "tied_head": True},
        },
        "granite": {"embedding_scale": 12.0, "residual_scale": 0.22, "logit_divisor": 4.0, "query_scale": 1.5},
        "minicpm": {"embedding_scale": 12.0, "residual_scale": 0.99, "logit_divisor": 2.5},
        "qwen2": {"rope_scaling": rope_scaling("yarn", {"factor": 4.0, **_ORIGINAL}, 64, plain.config.rope_theta)},
        "llama": {"rope_scaling": rope_scaling("llama3", _LLAMA_3_1, 64, plain.config.rope_theta)},
    }.get(case.architecture, {})
    config = replace(plain.config, **fields, **more)
    assert entry.has(config)

    def drawn(layer: int, name: str, width: int) -> np.ndarray:
        index = np.arange(width, dtype=np.uint64) + np.uint64(1000 * layer + 100_000 * len(name) + ord(name[0]))
        noise = ((random_bits(case.seed, index) >> np.uint64(40)).astype(np.float32) / np.float32(2**24)) - np.float32(
            0.5
        )
        return noise if name.endswith("bias") else 1 + noise

    layers = []
    for n, layer in enumerate(plain.weights.layers):
        new = {w: drawn(n, w, size) for w, size in config.vector_widths().items() if getattr(layer, w) is None}
        layers.append(replace(layer, **new))
    head = None if config.tied_head else plain.weights.head
    return replace(plain, config=config, weights=replace(plain.weights, layers=tuple(layers), head=head))


_ORIGINAL = {"original_max_position_embeddings": 8}
_LLAMA_3_1 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_ORIGINAL}


def squared_relu_model(name: str, folder: Path) -> Checkpoint:
    """``kjv-ar`` or ``seeded-<seed>``."""
    if name == "kjv-ar":
        return kjv_ar()
    folder.mkdir(parents=True, exist_ok=True)
    write_seeded_model(folder, _shape(int(name.removeprefix("seeded-"))))
    return open_checkpoint(folder)


def _shape(seed: int) -> Shape:
    """Rows of 256 and 512: what TQ1_0 and TQ2_0 can hold."""
    return Shape(seed=seed, hidden=256, inter=512, layers=2, heads=4, kv_heads=2, context=64)


def kjv_ar() -> Checkpoint:
    """The embedded model, squared ReLU."""
    return open_checkpoint(trained_model("kjv-ar"))


def with_silu(checkpoint: Checkpoint) -> Checkpoint:
    """The graph that llama.cpp runs as ``bitnet``, whatever the model's own activation."""
    return replace(checkpoint, config=replace(checkpoint.config, activation="silu"))


def tokens_of(case: Case) -> list[int]:
    """16 bytes."""
    return judging_tokens(16, 256, case.seed)


# ---- the peers ---------------------------------------------------------------------------------------------------


class RefusedError(Exception):
    """The peer would not open the file."""


def llama_cpp(python: str, file: Path, ids: list[int], new_tokens: int = NEW_TOKENS) -> dict[str, np.ndarray]:
    """tokens, logprobs, generated."""
    out = file.with_suffix(".npz")
    _run(python, "llama_cpp_logits.py", out, ids, new_tokens, file)
    with np.load(out) as arrays:
        return {"tokens": np.array(ids), "logprobs": arrays["logprobs"], "generated": arrays["generated"]}


def tritium(python: str, file: Path, ids: list[int], new_tokens: int = NEW_TOKENS) -> dict[str, list[int]]:
    """generated, next."""
    out = file.with_suffix(".json")
    _run(python, "tritium_greedy.py", out, ids, new_tokens, file)
    answer: dict[str, list[int]] = json.loads(out.read_text())
    return answer


def _run(python: str, script: str, out: Path, ids: list[int], new_tokens: int, file: Path) -> None:
    command = [python, str(HERE / script), str(out), ",".join(map(str, ids)), str(new_tokens), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        raise RefusedError(done.stderr)
    assert done.returncode == 0, done.stderr


# ---- our side ----------------------------------------------------------------------------------------------------


def arithmetic_of(weights: str) -> Arithmetic:
    """What llama.cpp does with activations for weights of this type."""
    return {"F32": unquantized(np.float32), "F16": unquantized(np.float16)}.get(weights, Q8_K_ARITHMETIC)


def unquantized(dtype: Any) -> Arithmetic:
    """Float activations, rounded to the type of the weights; float64 sums."""

    def keep(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x.astype(dtype).astype(np.float32), np.ones(len(x), np.float32)

    def accumulate(x: np.ndarray, trits: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) @ trits.T.astype(np.float64)).astype(np.float32)

    def apply_scale(sums: np.ndarray, ones: np.ndarray, scale: np.ndarray, rule: ScaleRule) -> np.ndarray:
        return sums * scale if rule == "multiply" else sums / scale

    return replace(GOLDEN_ARITHMETIC, quantize=keep, accumulate=accumulate, apply_scales=apply_scale)


def log_probabilities(x: np.ndarray, head: Any) -> np.ndarray:
    """In the place of the logits, float64 [tokens, vocab], not below FLOOR."""
    logits = GOLDEN_ARITHMETIC.logits(x, head).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.maximum(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), FLOOR)


def judge(
    checkpoint: Checkpoint, peer: dict[str, np.ndarray], arithmetic: Arithmetic, head: Any = log_probabilities
) -> LogitsVerdict:
    """Every position's log-probabilities of the whole vocabulary, with int8 codes at rounding ties followed.

    head: how they come of the final hidden states.
    """
    golden = GoldenRun.of(checkpoint, peer["tokens"].tolist(), replace(arithmetic, logits=head))
    return judge_logits("steps", golden, np.maximum(peer["logprobs"], FLOOR))


def continuation(checkpoint: Checkpoint, ids: list[int], arithmetic: Arithmetic, count: int = NEW_TOKENS) -> list[int]:
    """Greedy; no end-of-sequence token ends it."""
    config, cache = replace(checkpoint.config, eos=()), Float32Cache(checkpoint.config, len(ids) + count)

    def next_logits(tokens: list[int]) -> np.ndarray:
        return forward(tokens, checkpoint.weights, config, cache, last_only=True, arithmetic=arithmetic)[-1]

    return [step.token for step in greedy(ids, config, next_logits, count)]


def main(python: str) -> None:
    """Record every case, and pytritium's answers to I2_S files."""
    RECORDED.mkdir(exist_ok=True)
    versions = "from importlib.metadata import version as v; print(v('xllamacpp'), v('pytritium'))"
    xllamacpp, pytritium = subprocess.check_output([python, "-c", versions], text=True).split()
    answers: dict[str, object] = {"pytritium": pytritium}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for case in CASES:
            model = model_of(case, folder / case.name)
            file = write_engine_file(folder / "model.gguf", model, case.architecture, case.weights)
            peer = llama_cpp(python, file, tokens_of(case))
            peer["logprobs"] = peer["logprobs"].astype(np.float32)  # they were printed at this precision
            save_file(peer, RECORDED / f"{case.name}.safetensors", metadata={"xllamacpp": xllamacpp})
        for name, ids in SQUARED_RELU.items():
            model = squared_relu_model(name, folder / name)
            file = write_engine_file(folder / "model.gguf", model, "bitnet-b1.58", "I2_S")
            answers[name] = tritium(python, file, ids)
    (RECORDED / "pytritium.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
