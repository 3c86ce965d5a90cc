"""ModelConfig -> config.json: as published files have it, and back again without a difference."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import configs
from refusals import refusal

from tritgold.config import ModelConfig
from tritgold.formats.hf_config import HfConfig, read_hf_config
from tritgold.formats.hf_config_writer import hf_config
from tritgold.golden import trained_model

examples = settings(max_examples=100, deadline=None, derandomize=True)


def read(config: dict[str, Any]) -> HfConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        return read_hf_config(path)


@examples
@given(configs(), st.sampled_from(["multiply", "divide"]))
def test_there_and_back_is_the_same_configuration(config: ModelConfig, rule: Any) -> None:
    config = replace(config, scale_rule=rule)
    found = read(hf_config(config))
    assert (found.model, found.mode) == (config, "offline")


@pytest.mark.parametrize("name", ["kjv-ar", "kjv-dlm"])
def test_the_embedded_models_have_this_config(name: str) -> None:
    """Written long before by other code. pad_token_id is training's; nothing here reads it."""
    text = (trained_model(name) / "config.json").read_text()
    theirs = json.loads(text)
    del theirs["pad_token_id"]
    ours = hf_config(read(theirs).model)
    assert ours == theirs
    assert list(ours) == list(theirs)  # and in the same order


@pytest.mark.parametrize(
    ("sub_norms", "rule", "names"),
    [
        (True, "multiply", ("BitNetForCausalLM", "bitnet", "autobitlinear")),
        (True, "divide", ("BitNetForCausalLM", "bitnet", "bitlinear")),
        (False, "multiply", ("LlamaForCausalLM", "llama", "autobitlinear")),
        (False, "divide", ("LlamaForCausalLM", "llama", "bitlinear")),
    ],
)
def test_architecture_and_linear_class(sub_norms: bool, rule: Any, names: tuple[str, str, str]) -> None:
    model = read(json.loads((trained_model("kjv-ar") / "config.json").read_text())).model
    found = hf_config(replace(model, sub_norms=sub_norms, scale_rule=rule))
    section = found["quantization_config"]
    assert (*found["architectures"], found["model_type"], section["linear_class"]) == names


def test_no_special_tokens_are_null_and_one_is_no_list() -> None:
    """A missing key would be 128000 and 128001 in transformers."""
    model = read(json.loads((trained_model("kjv-ar") / "config.json").read_text())).model
    none = hf_config(replace(model, bos=None, eos=()))
    assert (none["bos_token_id"], none["eos_token_id"]) == (None, None)
    assert hf_config(replace(model, eos=(7,)))["eos_token_id"] == 7


def test_online_masters() -> None:
    model = read(json.loads((trained_model("kjv-ar") / "config.json").read_text())).model
    found = hf_config(model, "online", "float32")
    assert (found["quantization_config"]["quantization_mode"], found["dtype"]) == ("online", "float32")
    assert read(found).mode == "online"
    assert refusal(lambda: hf_config(replace(model, scale_rule="divide"), "online")).kind == "scale-rule"
