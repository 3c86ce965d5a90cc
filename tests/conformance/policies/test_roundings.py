"""Roundings of a policy on models that it has no place for."""

import numpy as np
import pytest
from library import golden

from tritgold.errors import ConfigError
from tritgold_conformance.judging.mode_matching import matched_mode
from tritgold_conformance.policies.roundings import stored


@pytest.mark.parametrize("scheme", ["q8_0", "q4_0"])
def test_heads_that_are_not_whole_blocks_are_refused(scheme: str) -> None:
    with pytest.raises(ConfigError, match="a multiple of 32; 40 is not"):
        stored(scheme, "k")(np.ones((3, 2, 20), np.float32))


def test_a_wrong_engine_of_such_a_model_is_judged() -> None:
    """kv_heads * head_dim of this model is 60: among the policies that are tried, q8_0 has no place in it."""
    run = golden("odd", 8)
    assert run.checkpoint.config.kv_heads * run.checkpoint.config.head_dim % 32
    near = run.logits + np.float32(0.01) * np.abs(run.logits).max() * np.sin(np.arange(run.logits.size)).reshape(
        run.logits.shape
    )
    assert matched_mode(run, {"logits": near.astype(np.float32)}) == ""
