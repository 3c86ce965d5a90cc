"""Shapes by size and by somebody's config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from tritgold.errors import ConfigError
from tritgold_conformance.bench.plan import Plan
from tritgold_conformance.bench.shapes import MODELS, MatrixShape, ModelShape, shape_of

QWEN = {
    "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
    "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 32768, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def written(folder: Path, **changed: Any) -> str:
    path = folder / "Qwen2.5-32B" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(QWEN | changed))
    return str(path)


def test_a_named_model_is_what_its_config_says(tmp_path: Path) -> None:
    found = shape_of(written(tmp_path))
    named = next(shape for shape in MODELS if shape.name == "qwen2.5-32b")
    assert isinstance(found, ModelShape)
    assert (found.name, found.config()) == ("Qwen2.5-32B", named.config())
    assert shape_of(str(tmp_path / "Qwen2.5-32B")) == found
    assert shape_of("qwen2.5-32b") == named


def test_squared_relu_means_sub_norms(tmp_path: Path) -> None:
    found = shape_of(written(tmp_path, hidden_act="relu2", num_key_value_heads=None))
    assert isinstance(found, ModelShape)
    assert (found.sub_norms, found.activation, found.architecture, found.kv_heads) == (True, "relu2", "bitnet", 40)


def test_matrices_of_any_size() -> None:
    assert shape_of("8192x4096") == MatrixShape("8192x4096", 8192, 4096)
    for text in ("0x8", "8x", "8x999999", "no-such-shape", "no/such/config.json"):
        assert shape_of(text) is None


@pytest.mark.parametrize(
    ("changed", "thing"),
    [
        ({"hidden_size": "large"}, "hidden_size"),
        ({"intermediate_size": 1000}, "multiple of 256"),
        ({"vocab_size": 0}, "vocab"),
    ],
)
def test_what_no_synthetic_model_can_be_made_of_is_said(tmp_path: Path, changed: dict[str, Any], thing: str) -> None:
    with pytest.raises(ConfigError, match=thing):
        shape_of(written(tmp_path, **changed))
    path = tmp_path / "odd.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"odd\.json"):
        shape_of(str(path))


def test_a_model_is_written_only_for_rows_that_open_one() -> None:
    assert not Plan(rows=("gemv", "sample", "attention"), threads=(1,)).needs_model
    assert Plan(rows=("gemv", "decode"), threads=(1,)).needs_model
    assert Plan(rows=("gemv",), threads=(1,), profile=True).needs_model
