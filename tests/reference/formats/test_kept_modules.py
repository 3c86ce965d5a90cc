"""modules_to_not_convert: which linears a list keeps dense, by transformers' rule of matching names."""

from typing import Any

import pytest
from refusals import refusal
from small_models import TINY, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError
from tritgold.formats.hf_config import parse_hf_config
from tritgold.formats.kept_modules import first_dense, is_kept, is_plain

UP = "model.layers.1.mlp.up_proj"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("up_proj", True),
        ("mlp.up_proj", True),
        ("model.layers.1", True),
        ("model", True),
        ("model.layers", True),
        ("model.layers.*.mlp", True),
        (".*up_proj", True),
        ("model.layers.11", False),
        ("model.layer", False),
        ("layers.1", False),
        ("up_pro", False),
        ("lm_head", False),
        ("embed_tokens", False),
    ],
)
def test_names_match_from_the_start_or_as_an_ending(name: str, kept: bool) -> None:
    assert is_kept([name], UP) is kept


def test_the_first_dense_linear_is_named() -> None:
    assert first_dense(["lm_head", "model.layers.3.mlp"], 5) == "model.layers.3.mlp.gate_proj"
    assert first_dense(["lm_head", "model.embed_tokens", "model.norm"], 5) is None
    assert first_dense([], 5) is None


@pytest.mark.parametrize("name", ["(a+)+$", "a" * 201, ".*.*.*.*.*", "", "a b", "é"])
def test_an_expression_that_may_take_forever_is_no_name(name: str) -> None:
    assert not is_plain(name)


@pytest.mark.parametrize(
    ("names", "mode", "says"),
    [
        (None, "offline", None),
        (None, "online", None),
        (["lm_head"], "offline", None),
        (["lm_head", "model.embed_tokens"], "online", None),
        ([], "offline", None),
        (["embed_tokens"], "offline", None),
        ([], "online", "leaves out lm_head, which transformers then makes ternary"),
        (["embed_tokens"], "online", "leaves out lm_head"),
        (["lm_head", "model.layers.0"], "offline", "keeps model.layers.0.self_attn.q_proj dense"),
        (["down_proj"], "offline", "keeps model.layers.0.mlp.down_proj dense"),
        (["(x+)+"], "offline", "holds what is not a name"),
        ([3], "offline", "holds what is not a name"),
        ("lm_head", "offline", "has the wrong type"),
    ],
)
def test_lists_in_a_configuration(tmp_path: Any, names: Any, mode: str, says: str | None) -> None:
    config = seeded(tmp_path, TINY).config
    config["quantization_config"] |= {"modules_to_not_convert": names, "quantization_mode": mode}
    if says is None:
        assert parse_hf_config(tmp_path, config).mode == mode
    else:
        error = refusal(lambda: parse_hf_config(tmp_path, config))
        assert isinstance(error, ConfigError)
        assert says in str(error)


def test_a_model_whose_list_names_the_embedding_opens(tmp_path: Any) -> None:
    model = seeded(tmp_path, TINY)
    expected = open_checkpoint(model.write(tmp_path / "a")).model_hash()
    model.config["quantization_config"]["modules_to_not_convert"] = ["lm_head", "model.embed_tokens", "model.norm"]
    assert open_checkpoint(model.write(tmp_path / "b")).model_hash() == expected
