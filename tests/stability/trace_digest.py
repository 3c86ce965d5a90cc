"""Prints, as JSON, the digests of golden traces in this process' environment; run once per environment.

    python tests/stability/trace_digest.py

Needs tritgold to be importable, and nothing of the tests. ``control`` is the digest of something that is known to
depend on the BLAS kernel: where it differs between two environments, they really are two.
"""

import hashlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import trained_model
from tritgold.golden.seeded import SHAPES, Shape, write_seeded_model
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold.weights import ModelWeights

SEEDED = SHAPES["seeded"]


def tokens(count: int, vocab: int) -> list[int]:
    return [(i * i * 31 + 7 * i + 256) % vocab for i in range(count)]


def seeded(shape: Shape, count: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        write_seeded_model(Path(folder), shape)
        checkpoint = open_checkpoint(folder)
        trace = Trace()
        forward(tokens(count, shape.vocab), checkpoint.weights, checkpoint.config, trace=trace)
        return trace.digest()


def trained(block: int) -> str:
    """The embedded model, causal or with the attention of block diffusion."""
    checkpoint, trace = open_checkpoint(trained_model("kjv-dlm")), Trace()
    forward(tokens(40, checkpoint.config.vocab), checkpoint.weights, checkpoint.config, trace=trace, block=block)
    return trace.digest()


def silu_and_division() -> str:
    """The same weights in a Llama-style graph: SiLU reaches exp, and scales divide."""
    with tempfile.TemporaryDirectory() as folder:
        write_seeded_model(Path(folder), SEEDED)
        checkpoint = open_checkpoint(folder)
        layers = tuple(replace(x, attn_sub_norm=None, ffn_sub_norm=None) for x in checkpoint.weights.layers)
        weights: ModelWeights = replace(checkpoint.weights, layers=layers)
        config = replace(checkpoint.config, activation="silu", sub_norms=False, scale_rule="divide")
        trace = Trace()
        forward(tokens(24, SEEDED.vocab), weights, config, trace=trace)
        return trace.digest()


def control() -> str:
    """A float32 product whose rounding depends on the order of summation."""
    i = np.arange(257 * 1031, dtype=np.int64)
    a = ((i * 7919 % 10007) / 10007 - 0.5).astype(np.float32).reshape(257, 1031)
    return hashlib.sha256((a @ a.T).tobytes()).hexdigest()


if __name__ == "__main__":
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    print(
        json.dumps(
            {
                "numpy": np.__version__,
                "blas": [f"{p['internal_api']} {p['version']} {p.get('architecture')}" for p in blas],
                "threads": [p["num_threads"] for p in blas],
                "digests": {
                    "seeded, 40 tokens": seeded(SEEDED, 40),
                    "seeded, odd sizes, 70 tokens": seeded(
                        Shape(seed=3, hidden=120, inter=204, layers=3, heads=6, kv_heads=3), 70
                    ),
                    "silu and division, 24 tokens": silu_and_division(),
                    "kjv-dlm, 40 tokens": trained(1),
                    "kjv-dlm, 40 tokens in blocks of 32": trained(32),
                },
                "control": control(),
            }
        )
    )
