"""Checkpoints of further architectures that contradict themselves: each refusal names file, key, found and expected."""

import json
from pathlib import Path
from typing import Any

import pytest
from architecture_files import FIXTURES, converted, edited
from refusals import refusal

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import TritgoldError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf

CASES = ("gemma3-auto-offline", "granite-auto-offline", "granite-auto-offline-scores", "llama-bitlinear-llama3")


@pytest.fixture(scope="module")
def models() -> dict[str, Checkpoint]:
    return {name: open_checkpoint(FIXTURES / name / "checkpoint") for name in CASES}


def refused(case: str, folder: Path, keys: dict[str, Any]) -> TritgoldError:
    error = refusal(lambda: open_checkpoint(edited(case, folder, keys)))
    assert isinstance(error, TritgoldError)
    return error


@pytest.mark.parametrize(
    ("case", "keys", "key"),
    [
        ("qwen2-bitlinear-yarn-window", {"sliding_window": 0}, "sliding_window"),
        ("granite-auto-offline", {"logits_scaling": 0}, "logits_scaling"),
        ("granite-auto-offline", {"residual_multiplier": float("nan")}, "residual_multiplier"),
        ("granite-auto-offline", {"attention_multiplier": 1e300}, "attention_multiplier"),
        ("gemma3-auto-offline", {"query_pre_attn_scalar": 5e-324}, "query_pre_attn_scalar"),
        ("qwen3-bitlinear", {"num_key_value_heads": 8}, "num_key_value_heads"),
        ("qwen3-bitlinear", {"head_dim": 25}, "head_dim"),
    ],
)
def test_a_value_that_is_not_usable_is_named_by_its_key(
    tmp_path: Path, case: str, keys: dict[str, Any], key: str
) -> None:
    error = refused(case, tmp_path / "m", keys)
    assert (error.kind, key in str(error.thing)) == ("config-value", True), str(error)
    assert "config.json" in str(error)


def test_keys_of_one_thing_that_contradict(tmp_path: Path) -> None:
    error = refused("gemma3-auto-offline", tmp_path / "m", {"hidden_act": "silu"})
    assert (error.kind, error.thing) == ("config-contradiction", "key 'hidden_act'")
    rope = json.loads((FIXTURES / "llama-bitlinear-llama3" / "checkpoint" / "config.json").read_text())
    for n, (low, high) in enumerate([(4.0, 4.0), (8.0, 2.0)]):
        band = {**rope["rope_parameters"], "low_freq_factor": low, "high_freq_factor": high}
        error = refused("llama-bitlinear-llama3", tmp_path / f"b{n}", {"rope_parameters": band})
        assert error.kind == "config-value"
        assert "high_freq_factor" in str(error.thing)
        assert f"above low_freq_factor = {low}" in str(error)


def rewritten(source: Checkpoint, path: Path, keys: dict[str, Any], change: Any = None) -> Path:
    """A GGUF file of it with other keys, None taking one out; change: of a tensor's bytes, by its name."""
    converted(source, path, "gguf-f32")
    file = GgufFile(path)
    metadata = {k: v for k, v in {**file.metadata, **keys}.items() if v is not None}

    def plan(tensor: StoredTensor) -> PlannedTensor:
        data = tensor.data.tobytes()
        data = data if change is None else change(tensor.name, data)
        return PlannedTensor(tensor.name, tensor.dtype, tensor.shape, len(data), lambda: [data])

    write_gguf(path.with_name("again.gguf"), metadata, [plan(tensor) for tensor in file.tensors.values()])
    return path.with_name("again.gguf")


@pytest.mark.parametrize(
    ("case", "keys", "thing"),
    [
        ("gemma3-auto-offline", {"gemma3.attention.sliding_window": 0}, "gemma3.attention.sliding_window"),
        ("granite-auto-offline", {"granite.attention.scale": -1.0}, "granite.attention.scale"),
        ("granite-auto-offline", {"granite.attention.scale": float("nan")}, "granite.attention.scale"),
        ("granite-auto-offline", {"granite.logit_scale": 0.0}, "granite.logit_scale"),
    ],
)
def test_the_same_in_gguf(
    models: dict[str, Checkpoint], tmp_path: Path, case: str, keys: dict[str, Any], thing: str
) -> None:
    error = refusal(lambda: open_checkpoint(rewritten(models[case], tmp_path / "m.gguf", keys)))
    assert (error.kind, error.thing) == ("config-value", f"key {thing!r}")


def test_a_scale_of_zero_or_none_is_the_usual_one_in_gguf(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    granite = models["granite-auto-offline-scores"]
    for value in (0.0, None):
        found = open_checkpoint(rewritten(granite, tmp_path / "m.gguf", {"granite.attention.scale": value}))
        assert found.config.query_scale == 1


def test_a_divisor_of_zero_is_that_of_its_tensor(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    def zero(name: str, data: bytes) -> bytes:
        return data[:4] + bytes(4) + data[8:] if name == "rope_freqs.weight" else data

    path = rewritten(models["llama-bitlinear-llama3"], tmp_path / "m.gguf", {}, zero)
    error = refusal(lambda: open_checkpoint(path))
    assert (error.kind, error.thing) == ("config-value", "key 'rope_freqs.weight'")
