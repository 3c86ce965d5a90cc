"""ModelConfig -> GGUF metadata: the keys by name, and back again without a difference."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import configs
from refusals import refusal

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.gguf_config import read_gguf_config
from tritgold.formats.gguf_metadata import default_architecture, gguf_metadata

examples = settings(max_examples=100, deadline=None, derandomize=True)

SMALL = ModelConfig(
    vocab=300, hidden=16, inter=24, layers=2, heads=2, kv_heads=1, head_dim=8, context=32, norm_eps=1e-5,
    rope_theta=5e5, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply", bos=256, eos=(257,),
)  # fmt: skip


@examples
@given(configs(), st.data())
def test_there_and_back_is_the_same_configuration(config: ModelConfig, data: st.DataObject) -> None:
    fitting = [name for name, kind in GGUF_ARCHITECTURES.items() if kind.has(config)]
    metadata = gguf_metadata(config, data.draw(st.sampled_from(fitting)), "x")
    floats = [value for value in metadata.values() if isinstance(value, float)]
    assert floats == [float(np.float32(value)) for value in floats]
    assert read_gguf_config(Path("m.gguf"), metadata, config.vocab, config.tied_head) == config


def test_the_keys_of_a_small_model() -> None:
    """Every key and value by hand, with the names of llama.cpp's src/llama-arch.cpp."""
    a = "bitnet-b1.58"
    assert gguf_metadata(SMALL, a, "small", 40) == {
        "general.architecture": a,
        "general.name": "small",
        "general.quantization_version": 2,
        "general.file_type": 40,
        f"{a}.vocab_size": 300,
        f"{a}.context_length": 32,
        f"{a}.embedding_length": 16,
        f"{a}.block_count": 2,
        f"{a}.feed_forward_length": 24,
        f"{a}.attention.head_count": 2,
        f"{a}.attention.head_count_kv": 1,
        f"{a}.attention.layer_norm_rms_epsilon": float(np.float32(1e-5)),
        f"{a}.rope.dimension_count": 8,
        f"{a}.rope.freq_base": 500000.0,
        f"{a}.hidden_activation": "relu2",
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
    }


def test_heads_that_do_not_make_up_the_width_are_said() -> None:
    wide = gguf_metadata(replace(SMALL, head_dim=32), "bitnet", "x")
    lengths = ("rope.dimension_count", "attention.key_length", "attention.value_length")
    assert [wide[f"bitnet.{key}"] for key in lengths] == [32, 32, 32]
    assert not [key for key in gguf_metadata(SMALL, "bitnet", "x") if "_length" in key and "attention" in key]


@pytest.mark.parametrize(
    ("arch", "activation", "written"),
    [
        ("bitnet", "silu", None),
        ("bitnet", "relu2", "relu2"),
        ("bitnet-b1.58", "silu", "silu"),
        ("bitnet-25", "relu2", "relu2"),
        ("llama", "relu2", "relu2"),
        ("llama", "silu", None),
    ],
)
def test_the_activation_is_written_where_a_reader_could_take_another(
    arch: str, activation: Any, written: str | None
) -> None:
    config = replace(SMALL, activation=activation, sub_norms=arch != "llama")
    assert gguf_metadata(config, arch, "x").get(f"{arch}.hidden_activation") == written


@pytest.mark.parametrize(
    ("eos", "keys"),
    [
        ((), {}),
        ((1, 2), {"eos": 1, "eot": 2}),
        ((3, 1, 2), {"eos": 3, "eot": 1, "eom": 2}),
        ((1, 2, 3, 4), {"eos": 1, "eot": 2, "eom": 3, "all": [1, 2, 3, 4]}),
        ((5, 5), {"eos": 5, "eot": 5, "all": [5, 5]}),
    ],
)
def test_several_ends_of_sequence(eos: tuple[int, ...], keys: dict[str, Any]) -> None:
    metadata = gguf_metadata(replace(SMALL, eos=eos), "bitnet", "x")
    found: dict[str, Any] = {k: v for k in ("eos", "eot", "eom") if (v := metadata.get(f"tokenizer.ggml.{k}_token_id"))}
    if "tritgold.eos_token_ids" in metadata:
        found["all"] = metadata["tritgold.eos_token_ids"].tolist()
    assert found == keys


def test_mask_and_block() -> None:
    metadata = gguf_metadata(replace(SMALL, mask=3, block=32), "bitnet", "x")
    assert (metadata["tokenizer.ggml.mask_token_id"], metadata["tritgold.block_size"]) == (3, 32)
    assert "tritgold.block_size" not in gguf_metadata(SMALL, "bitnet", "x")


def test_the_architecture_that_a_graph_has() -> None:
    assert default_architecture(SMALL) == "bitnet-b1.58"
    assert default_architecture(replace(SMALL, activation="silu")) == "bitnet"
    assert default_architecture(replace(SMALL, activation="silu", sub_norms=False)) == "llama"
    error = refusal(lambda: default_architecture(replace(SMALL, sub_norms=False)))
    assert isinstance(error, ConfigError)
    assert error.kind == "architecture"


def test_what_gguf_cannot_hold_is_refused() -> None:
    assert refusal(lambda: gguf_metadata(SMALL, "gpt2", "x")).kind == "architecture"
    error = refusal(lambda: gguf_metadata(SMALL, "llama", "x"))
    assert (error.kind, error.expected) == ("architecture", "bitnet-b1.58")
    assert refusal(lambda: gguf_metadata(replace(SMALL, sub_norms=False), "bitnet", "x")).kind == "architecture"
    assert refusal(lambda: gguf_metadata(replace(SMALL, scale_rule="divide"), "bitnet", "x")).kind == "scale-rule"
