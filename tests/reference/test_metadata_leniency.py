"""What says nothing of the graph is accepted alike everywhere; what contradicts is said with its size and place."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal
from small_models import TINY, Entry, HfModel, bf16_entry, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def model(tmp_path: Path) -> HfModel:
    return seeded(tmp_path, TINY)


NEUTRAL: list[dict[str, Any]] = [
    {"rope_scaling": {"type": "default"}},
    {"rope_scaling": {"rope_type": "default", "factor": 1.0}},
    {"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 1.0}},
    {"rope_scaling": {"type": "linear", "factor": 1, "attn_factor": 1.0}},
    {"sliding_window": 16, "max_window_layers": 1, "use_sliding_window": False},
]
REFUSED: list[dict[str, Any]] = [
    {"rope_scaling": {"type": "linear", "factor": 2.0, "novel": 1}},
    {"rope_scaling": {"type": "novel", "factor": 2.0}},
    {"rope_scaling": {"type": "default", "novel": 1}},
    {"rope_scaling": {"type": "default", "rope_type": "linear", "factor": 1.0}},
    {"rope_scaling": {"type": ["default"]}},
    {"rope_scaling": {}},
    {"rope_scaling": "default"},
    {"sliding_window": 16},
    {"sliding_window": 16, "use_sliding_window": True},
]


@pytest.mark.parametrize("keys", NEUTRAL)
def test_neutral_keys(model: HfModel, tmp_path: Path, keys: dict[str, Any]) -> None:
    plain = open_checkpoint(model.write(tmp_path / "plain")).config
    model.config |= keys
    assert open_checkpoint(model.write(tmp_path / "m")).config == plain


@pytest.mark.parametrize("keys", REFUSED)
def test_keys_that_change_the_graph(model: HfModel, tmp_path: Path, keys: dict[str, Any]) -> None:
    model.config |= keys
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert isinstance(error, ConfigError)
    assert error.kind == "config-unsupported"


def test_a_copy_of_the_tied_head_in_another_dtype_is_the_same(model: HfModel, tmp_path: Path) -> None:
    values = model.floats(EMBEDDING)
    plain = open_checkpoint(model.write(tmp_path / "plain")).model_hash()
    model.entries[HEAD] = Entry("F32", values.shape, values.tobytes())
    assert open_checkpoint(model.write(tmp_path / "m")).model_hash() == plain


def test_a_copy_that_differs_says_by_how_much_and_where(model: HfModel, tmp_path: Path) -> None:
    values = model.floats(EMBEDDING)
    values[3, 5] += np.float32(0.25)
    values[4, 1] = -values[4, 1] * 2
    largest = abs(float(values[4, 1]) * 1.5)
    model.entries[HEAD] = Entry("F32", values.shape, values.tobytes())
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert error.kind == "tied-head"
    place = "[4, 1]" if largest > 0.25 else "[3, 5]"
    assert f"2 values, by at most {max(largest, 0.25):.6g} at {place}" in str(error)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "nan"), (-np.inf, "-inf")])
def test_a_number_that_is_not_finite_has_a_place(model: HfModel, tmp_path: Path, value: float, word: str) -> None:
    values = model.floats(EMBEDDING)
    values[7, 2] = value
    model.entries[EMBEDDING] = bf16_entry(values)
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert error.kind == "weight-non-finite"
    assert f"{word} at [7, 2]" in str(error)


@pytest.mark.parametrize(("alignment", "good"), [(24, True), (40, True), (8, True), (12, False), (0, False)])
def test_alignments_are_multiples_of_8(tmp_path: Path, alignment: int, good: bool) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, {"general.architecture": "llama"}, [])
    pair = b"general.alignment"
    raw = path.read_bytes()
    key = len(pair).to_bytes(8, "little") + pair + (4).to_bytes(4, "little") + alignment.to_bytes(4, "little")
    path.write_bytes(raw[:16] + (2).to_bytes(8, "little") + key + raw[24:] + bytes(64))
    if good:
        with pytest.warns(TritgoldWarning, match="not a power of two") if alignment != 8 else nullcontext():
            assert GgufFile(path).alignment == alignment
    else:
        assert refusal(lambda: GgufFile(path)).kind == "alignment"
