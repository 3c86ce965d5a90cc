"""``tritgold trace`` and ``tritgold compare``: what two traces are told of each other."""

from pathlib import Path

import numpy as np
import pytest
from tritgold_command import call, parsed

from tritgold.trace import Trace


def test_trace_and_compare_agree(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    assert call("trace", "seeded", "--ids", "256,72,101", "-o", first).exit_code == 0
    summary = parsed(call("trace", "seeded", "--ids", "256,72,101", "-o", second, "--json"))
    assert summary["digest"] == Trace.load(first).digest()
    assert summary["arrays"]["logits"] == {"dtype": "float32", "shape": [3, 259]}
    result = call("compare", first, second)
    assert result.exit_code == 0
    assert "agree" in result.stdout


def test_the_jax_engine_is_compared_across_backends_and_modes_are_told_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", first)
    assert call("trace", "seeded", "--ids", "256,72,101", "--backend", "xla", "-o", second).exit_code == 0
    result = parsed(call("compare", first, second, "--json"))
    assert result["verdict"] == "agree"
    assert 0 < result["noise"] < 1e-5
    other = Trace.load(second)
    other.mode = "w1.58a16/1"
    other.save(second)
    assert "of another mode" in call("compare", first, second).stderr


def test_compare_finds_the_first_divergence(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", first)
    spoiled = Trace.load(first)
    spoiled.arrays["layers.2.up.acc"] = spoiled["layers.2.up.acc"].copy()
    spoiled.arrays["layers.2.up.acc"][1, 5] += 1
    spoiled.save(second)
    result = call("compare", first, second, "--json")
    assert result.exit_code == 1
    assert parsed(result)["first_divergence"]["name"] == "layers.2.up.acc"
    assert parsed(result)["first_divergence"]["worst"] == [1, 5]


def test_compare_refuses_traces_of_other_inputs_and_other_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72", "-o", first)
    call("trace", "seeded", "--ids", "256,73", "-o", second)
    result = call("compare", first, second)
    assert result.exit_code == 3
    assert "of another input" in result.stderr
    assert call("compare", first, tmp_path / "absent").exit_code == 3


def with_a_broken_tie(golden: Path, position: int, target: Path) -> None:
    """A golden trace whose tie nearest to breaking at this position went the other way, and garbage after it."""
    trace = Trace.load(golden)
    x, scale, codes = (trace[f"layers.0.attn_{n}"] for n in ("norm", "in.scale", "in.codes"))
    scaled = x[position].astype(np.float64) * scale[position]
    channel = int(np.argmax(np.abs(scaled - np.rint(scaled))))
    trace.arrays["layers.0.attn_norm"] = x.copy()
    trace["layers.0.attn_norm"][position, channel] = (np.floor(scaled[channel]) + 0.5) / scale[position]
    trace.save(golden)
    trace.arrays["layers.0.attn_in.codes"] = codes.copy()
    up = codes[position, channel] <= scaled[channel]
    trace["layers.0.attn_in.codes"][position, channel] += 1 if up else -1
    names = list(trace.arrays)
    for name in names[names.index("layers.0.probs") :]:
        if not name.endswith(".codes"):
            trace.arrays[name] = trace[name].copy()
            (trace[name].transpose(1, 0, 2) if name.endswith(".probs") else trace[name])[position:] *= 3
    trace.save(target)


@pytest.mark.parametrize(("position", "code"), [(0, 5), (2, 0)])
def test_compare_says_how_far_it_could_judge(tmp_path: Path, position: int, code: int) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", first)
    with_a_broken_tie(first, position, second)
    result = call("compare", first, second)
    assert result.exit_code == code, result.stdout
    assert "not judged to the end, after a broken tie: positions" in result.stdout


def test_compare_with_the_model_follows_ties(tmp_path: Path, model: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", model, "--ids", "1,2,3", "-o", first)
    call("trace", model, "--ids", "1,2,3", "--backend", "xla", "-o", second)
    assert call("compare", first, second, "--model", model).exit_code == 0
    refused = call("compare", second, first, "--model", model)
    assert refused.exit_code == 3
    assert "is not the golden trace of this model" in refused.stderr


def test_a_partial_golden_trace_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", second)
    part = Trace.load(second)
    part.arrays = {name: array for name, array in part.arrays.items() if name.endswith(".probs")}
    part.save(first)
    assert parsed(call("compare", first, second, "--json"))["compared"] == [f"layers.{n}.probs" for n in range(4)]


def test_compare_of_nothing_is_not_a_pass(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72", "-o", first)
    empty = Trace.load(first)
    empty.arrays = {}
    empty.save(second)
    assert call("compare", first, second).exit_code == 5
