"""A small golden run, and its rows of log-probabilities."""

from pathlib import Path

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.golden.run import GoldenRun, judging_tokens

SMALL = Shape(seed=9, hidden=64, inter=96, layers=2, heads=4, kv_heads=2, context=32)
COUNT = 9
Rows = np.ndarray


def small_golden(folder: Path) -> GoldenRun:
    """The run of SMALL over COUNT tokens; the model is written into the folder."""
    write_seeded_model(folder, SMALL)
    return GoldenRun.of(open_checkpoint(folder), judging_tokens(COUNT, 259, seed=3))


def log_probabilities(logits: Rows) -> Rows:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
