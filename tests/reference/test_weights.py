"""ModelWeights: order and names of the linears, and where logits come from."""

from pathlib import Path

import pytest
from small_models import seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.graph import operations
from tritgold.weights import LINEARS, LayerWeights


def test_linears_come_in_execution_order(tmp_path: Path) -> None:
    opened = open_checkpoint(seeded(tmp_path).write(tmp_path / "hf"))
    names = [name for name, _ in opened.weights.linears()]
    assert names == [o.name for o in operations(opened.config) if o.kind == "bit_linear"]
    for name, weight in opened.weights.linears():
        short = name.rpartition(".")[2]
        assert weight is opened.weights.layers[0].linear(short)
        assert weight.shape == weight.ternary().shape == opened.config.linear_shape(short)


def test_an_unknown_linear_is_named() -> None:
    with pytest.raises(KeyError, match="attn_norm"):
        LayerWeights.linear(None, "attn_norm")  # type: ignore[arg-type]
    assert len(set(LINEARS)) == 7
