"""training.json: the facts about each run for its model card, written by the training beside the models."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.errors import FormatError
from tritgold.machine import processor
from tritgold_xla.training.corpus import HELD_OUT_EVERY, SHA256
from tritgold_xla.training.run_state import Run
from tritgold_xla.training.tokens import Stream

FILE, CURVE_EVERY = "training.json", 25
HELD_OUT = {"kjv": "held_out_bits_per_byte", "skills": "held_out_accuracy"}  # what a run is scored by
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "tokenizers")


def corpus_facts(train: Stream, held_out: Stream, five_gram: float) -> dict[str, Any]:
    """The facts about the corpus: text, split and 5-gram baseline (bits per byte)."""
    return {
        "sha256": SHA256,
        "held_out": f"every {HELD_OUT_EVERY}th chapter",
        "train": {"tokens": len(train.ids), "bytes": train.bytes},
        "held-out": {"tokens": len(held_out.ids), "bytes": held_out.bytes},
        "five_gram_bits_per_byte": round(five_gram, 4),
    }


def run_facts(run: Run) -> dict[str, Any]:
    """Recipe, machine, time and curve of a run. curve: (step, mean loss of the last steps up to it, nats per token)."""
    losses = np.array(run.losses)
    ends = [*range(CURVE_EVERY, len(losses), CURVE_EVERY), len(losses)]
    curve = [[end, round(float(losses[max(end - CURVE_EVERY, 0) : end].mean()), 4)] for end in ends]
    return {
        "recipe": run.recipe.as_dict(),
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "seconds": round(run.seconds),
        "curve": curve,
        HELD_OUT[run.recipe.data]: [[step, round(bits, 4)] for step, bits in run.held_out],
    }


def recorded(folder: Path, name: str) -> bool:
    """Whether the folder's training.json has ``name``."""
    return name in _read(folder / FILE)


def record(folder: Path, name: str, facts: dict[str, Any]) -> None:
    """Store ``facts`` as ``name`` in the folder's training.json; other entries are kept."""
    path = folder / FILE
    known = _read(path)
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(json.dumps({**known, name: facts}, indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (OSError, ValueError, TypeError) as error:
        hint = "remove it; the runs write it again"
        raise FormatError(f"cannot be read: {error}", kind="training-facts", file=path, hint=hint) from error
