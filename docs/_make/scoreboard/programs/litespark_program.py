"""litespark-inference as a program of docs/command-protocol.md: logits of every session.

python litespark_program.py [--pieces] INPUTS OUTPUTS

Its loader takes names of the Hugging Face hub alone, so the model is made of its own classes and its own packing, from
the unpacked weights that the judge gives. The head is bf16, not its default of int4. --pieces: at most 64 tokens in a
call of its batched kernel.
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

from answering import Read, answer, asked  # noqa: E402  after the numbers of threads
from litespark_inference.torchless import model as classes  # noqa: E402
from litespark_inference.torchless import runtime  # noqa: E402
from litespark_inference.torchless.pack import pack_ternary_4_per_byte  # noqa: E402

PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
               "down": "down_proj"}  # fmt: skip
NORMS = {"attn_norm": "input_norm", "ffn_norm": "post_attn_norm", "attn_sub_norm": "attn_sub_norm",
         "ffn_sub_norm": "ffn_sub_norm"}  # fmt: skip
PIECE = 64
NAME = "litespark-inference"


def main(inputs: Path, outputs: Path, *options: str) -> None:
    """Answer the requests of one run."""
    config, requests, arrays = asked(inputs)
    if config["activation"] != "relu2" or not config["sub_norms"] or not config["tied_head"]:
        sys.exit("unsupported: it runs squared ReLU, sub-norms and a tied head")
    model = assembled(config, arrays)

    def begin() -> Read:
        state = runtime.init_state(model, config["context"])

        def read(tokens: list[int]) -> np.ndarray:
            pieces = (
                [tokens] if "--pieces" not in options else [tokens[n : n + PIECE] for n in range(0, len(tokens), PIECE)]
            )
            return np.concatenate([runtime.forward_prefill_all_logits(model, state, piece) for piece in pieces])

        return read

    answer(outputs, requests, begin, NAME, {NAME: version(NAME)})


def assembled(config: dict[str, object], arrays: dict[str, np.ndarray]) -> classes.PackedBitNetModel:
    """Its model, of the judge's arrays. Gains and embedding are bf16, as in the checkpoints that it loads."""
    sizes = {
        "hidden_size": "hidden", "num_layers": "layers", "num_heads": "heads", "num_kv_heads": "kv_heads",
        "intermediate_size": "inter", "vocab_size": "vocab", "max_position_embeddings": "context",
        "rms_norm_eps": "norm_eps", "rope_theta": "rope_theta",
    }  # fmt: skip
    layers = []
    for n in range(int(str(config["layers"]))):
        parts = {theirs: projection(arrays, f"layers.{n}.{ours}") for ours, theirs in PROJECTIONS.items()}
        norms = {theirs: bf16(arrays[f"layers.{n}.{ours}"]) for ours, theirs in NORMS.items()}
        layers.append(classes.PackedLayer(**parts, **norms))
    return classes.PackedBitNetModel(
        config=classes.BitNetConfig(**{theirs: config[ours] for theirs, ours in sizes.items()}),
        embed_tokens=bf16(arrays["embedding"]),
        final_norm=bf16(arrays["final_norm"]),
        layers=layers,
    )


def projection(arrays: dict[str, np.ndarray], name: str) -> classes.PackedProjection:
    """One linear, packed by its own function."""
    trits = np.ascontiguousarray(arrays[f"{name}.trits"])
    rows, columns = trits.shape
    return classes.PackedProjection(
        w_packed=pack_ternary_4_per_byte(trits),
        w_sum=trits.sum(axis=1, dtype=np.int32),
        scale=float(arrays[f"{name}.scale"]),
        in_features=columns,
        out_features=rows,
    )


def bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 that are bf16 numbers, uint16."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if (words & 0xFFFF).any():
        sys.exit("unsupported: gains and embedding must be bf16 numbers")
    return (words >> 16).astype(np.uint16)


if __name__ == "__main__":
    *options, inputs, outputs = sys.argv[1:]
    main(Path(inputs), Path(outputs), *options)
