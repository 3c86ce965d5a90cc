"""Real engines of a declared precision conform to it, live. And the Q6_K head that is made for one of them."""

import os
from pathlib import Path

import numpy as np
import pytest
from judged import Case, row_of
from q6_k_head import q6_k

from tritgold.formats.dense_blocks import DENSE_BLOCKS

live = pytest.mark.skipif(
    not os.environ.get("TRITGOLD_PEERS_PYTHON"), reason="the peers run only where TRITGOLD_PEERS_PYTHON names theirs"
)
BF16 = Case("transformers", "kjv-ar", "golden", policy="bf16")
DEFAULTS = Case("server", "kjv-ar", "llama-cpp-q8_k", silu=True, options=("--defaults",), policy="attention-f16")
Q6_K = Case("llama.cpp", "kjv-ar", "llama-cpp-q8_k", silu=True, head="q6_k", policy="head-q6_k")


@pytest.mark.parametrize("seed", [1, 2])
def test_q6_k_is_read_as_it_was_meant(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(3, 512)).astype(np.float32)
    rows[1, :16] = 0
    read = DENSE_BLOCKS["Q6_K"](q6_k(rows).reshape(-1, 210)).reshape(rows.shape)
    largest = np.abs(rows).reshape(3, -1, 16).max(axis=2).repeat(16, axis=1)
    assert (np.abs(read - rows) <= largest / 31).all()
    assert np.abs(read - rows).max() > 0


@live
@pytest.mark.parametrize("case", [BF16, DEFAULTS, Q6_K], ids=lambda case: case.policy)
def test_a_real_engine_conforms_to_its_policy(case: Case, tmp_path: Path) -> None:
    row = row_of(case, tmp_path)
    assert row["verdict"] == "conforms", row
    assert case.policy in row["mode"]
