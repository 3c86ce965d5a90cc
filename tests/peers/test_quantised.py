"""Files as llama-quantize leaves them, of llama.cpp and of ik_llama.cpp: opened, and judged against llama.cpp."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from light_cases import RECORDED, RefusedError, judge, llama_cpp
from quantised import IK_TYPES, NARROW, TOKENS, WIDE, in_f32, llama_quantize, q6_k_head, source
from safetensors.numpy import load_file
from test_llama_cpp import assert_agrees, failing

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.formats.gguf_file import GgufFile
from tritgold.golden.seeded import Shape
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC

PYTHON = os.environ.get("TRITGOLD_PEERS_PYTHON", "")
live = pytest.mark.skipif(not PYTHON, reason="llama.cpp runs only where TRITGOLD_PEERS_PYTHON names its python")
TQ2_0 = RECORDED / "llama-quantize-tq2_0.gguf"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[Shape, Checkpoint]:
    return {shape: source(tmp_path_factory.mktemp("source"), shape) for shape in (WIDE, NARROW)}


def types(file: GgufFile) -> dict[str, set[str]]:
    """Type -> the tensors that have it, without the number of their layer."""
    return {t.dtype: {n for n, u in file.tensors.items() if u.dtype == t.dtype} for t in file.tensors.values()}


def test_types_are_those_of_llama_quantize() -> None:
    found = types(GgufFile(TQ2_0))
    assert found["Q4_K"] == {"token_embd.weight"}
    assert found["Q6_K"] == {"output.weight"}
    assert len(found["TQ2_0"]) == 7
    assert set(found) == {"Q4_K", "Q6_K", "TQ2_0", "F32"}


def test_its_trits_are_those_of_the_source_and_its_floats_near(sources: dict[Shape, Checkpoint]) -> None:
    model, right = open_checkpoint(TQ2_0), sources[WIDE]
    assert_same_linears(model, right)
    assert model.weights.head is not None
    assert right.weights.head is not None
    for found, meant, steps in (
        (model.weights.embedding, right.weights.embedding, 15),
        (model.weights.head, right.weights.head, 63),
    ):
        a, b = found.rows(slice(None)), meant.rows(slice(None))
        assert 0 < np.abs(a - b).max() < 1.5 * np.ptp(b) / steps


def assert_same_linears(model: Checkpoint, right: Checkpoint) -> None:
    for (name, a), (_, b) in zip(model.weights.linears(), right.weights.linears(), strict=True):
        assert np.array_equal(a.ternary().dense(), dense_of(b, right)), name


def dense_of(weight: object, model: Checkpoint) -> np.ndarray:
    tensor = weight.ternary()  # type: ignore[attr-defined]
    return tensor.trits * (1 / tensor.scale if model.config.scale_rule == "divide" else tensor.scale)


@pytest.mark.parametrize(("file", "shape", "to"), [
    ("llama-quantize-tq2_0", WIDE, "tq2_0"),
    *((f"ik-llama-quantize-{kind.lower()}", NARROW, kind.lower()) for kind in IK_TYPES),
])  # fmt: skip
def test_bytes_of_ternary_tensors_are_those_that_tritgold_writes(
    sources: dict[Shape, Checkpoint], tmp_path: Path, file: str, shape: Shape, to: str
) -> None:
    convert(sources[shape], tmp_path / "ours.gguf", to, Options(architecture="llama", embedding="F32"))
    ours, theirs = GgufFile(tmp_path / "ours.gguf"), GgufFile(RECORDED / f"{file}.gguf")
    ternary = [name for name, tensor in theirs.tensors.items() if tensor.dtype == to.upper()]
    assert len(ternary) == 7
    for name in ternary:
        assert np.array_equal(ours.tensors[name].data, theirs.tensors[name].data), name


@pytest.mark.parametrize("kind", IK_TYPES)
def test_files_of_ik_llama_open_as_the_source(sources: dict[Shape, Checkpoint], kind: str) -> None:
    model = open_checkpoint(RECORDED / f"ik-llama-quantize-{kind.lower()}.gguf")
    assert_same_linears(model, sources[NARROW])


def test_every_log_probability_agrees() -> None:
    model, peer = open_checkpoint(TQ2_0), load_file(RECORDED / "llama-quantize-tq2_0.safetensors")
    assert_agrees(judge(model, peer, Q8_K_ARITHMETIC, q6_k_head))


def test_a_head_read_in_float32_is_told_apart() -> None:
    model, peer = open_checkpoint(TQ2_0), load_file(RECORDED / "llama-quantize-tq2_0.safetensors")
    assert failing(judge(model, peer, Q8_K_ARITHMETIC)) == len(TOKENS)


def quantised(model: Checkpoint, folder: Path, kind: str) -> Path:
    try:
        return llama_quantize(PYTHON, in_f32(model, folder), kind)
    except RefusedError as error:
        pytest.skip(f"no quantiser of llama.cpp here: {str(error).strip()[-200:]}")


@live
def test_the_recorded_file_is_what_llama_cpp_makes(sources: dict[Shape, Checkpoint], tmp_path: Path) -> None:
    made = quantised(sources[WIDE], tmp_path, "TQ2_0")
    now, then = GgufFile(made), GgufFile(TQ2_0)
    assert types(now) == types(then)
    for name, tensor in then.tensors.items():
        assert np.array_equal(now.tensors[name].data, tensor.data), name


@live
def test_q2_0_holds_the_trits_of_the_source(sources: dict[Shape, Checkpoint], tmp_path: Path) -> None:
    assert_same_linears(open_checkpoint(quantised(sources[WIDE], tmp_path, "Q2_0")), sources[WIDE])


@live
@pytest.mark.parametrize("kind", ["TQ1_0", "TQ2_0"])
def test_a_fresh_file_agrees(tmp_path: Path, kind: str) -> None:
    model = source(tmp_path / "fresh", replace(WIDE, seed=777, layers=2))
    made = quantised(model, tmp_path, kind)
    opened = open_checkpoint(made)
    assert_same_linears(opened, model)
    assert_agrees(judge(opened, llama_cpp(PYTHON, made, TOKENS), Q8_K_ARITHMETIC, q6_k_head))
