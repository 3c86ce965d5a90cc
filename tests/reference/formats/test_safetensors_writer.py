"""Writing safetensors: what the library reads in it, shards as transformers cuts them, nothing left of a failure."""

import hashlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from huggingface_hub import split_state_dict_into_shards_factory
from plans import assert_nothing_is_left, plan
from refusals import refusal
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.safetensors_file import INDEX, SafetensorsFile
from tritgold.formats.safetensors_folder import SafetensorsFolder
from tritgold.formats.safetensors_writer import write_safetensors, write_sharded
from tritgold.golden.seeded import SHAPES, write_seeded_model

RNG = np.random.default_rng(0)
ARRAYS = {
    "bf16": RNG.normal(size=(3, 5)).astype(ml_dtypes.bfloat16),
    "f16": RNG.normal(size=(4, 2)).astype(np.float16),
    "f32": RNG.normal(size=(2, 3, 4)).astype(np.float32),
    "u8": RNG.integers(0, 256, (7, 3), np.uint8),
    "i8": RNG.integers(-128, 128, 9, np.int8),
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "uint8": "U8", "int8": "I8"}


def planned(name: str, array: np.ndarray) -> PlannedTensor:
    data = array.tobytes()
    return PlannedTensor(name, DTYPES[array.dtype.name], array.shape, len(data), lambda: [data[:1], data[1:]])


PLAN = [planned(name, array) for name, array in ARRAYS.items()]


def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", iter(PLAN), {"format": "pt", "note": 'é "\n'})
    theirs = load_file(tmp_path / "m.safetensors")
    assert set(theirs) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (theirs[name].dtype, theirs[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(theirs[name], array)
    with safe_open(tmp_path / "m.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt", "note": 'é "\n'}
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_the_bytes_are_these(tmp_path: Path) -> None:
    """Header without spaces, padded to a multiple of 8; the widest dtype first, then by name."""
    write_safetensors(tmp_path / "m", [plan("b", b"123"), plan("z", b"4", "I8", (1, 1)), plan("a", b"5")], {"k": "v"})
    header = (
        b'{"__metadata__":{"k":"v"},"z":{"dtype":"I8","shape":[1,1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}}'
    )
    assert (len(header), (tmp_path / "m").read_bytes()) == (184, (184).to_bytes(8, "little") + header + b"45123")
    write_safetensors(tmp_path / "m", [plan("bc", b"123"), plan("z", b"4", "I8", (1, 1)), plan("a", b"5")], {"k": "v"})
    header = header.replace(b'"b"', b'"bc"')
    assert (tmp_path / "m").read_bytes() == (192).to_bytes(8, "little") + header + b"       " + b"45123"


def test_the_bytes_are_those_of_the_library(tmp_path: Path) -> None:
    """Every dtype that NumPy has, names that sort otherwise as text than as numbers, an empty tensor."""
    dtypes = [f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)]
    dtypes += ["float16", "float32", "float64", "bool"]
    arrays = {f"{n}.{name}": np.ones(n, name) for n in (0, 2, 10) for name in dtypes}
    arrays |= {"bf16": np.ones(3, ml_dtypes.bfloat16), **{f"é{n}": np.ones(n, np.uint8) for n in (1, 10, 9)}}
    save_file(arrays, tmp_path / "theirs", {"format": "pt"})
    tensors = SafetensorsFile(tmp_path / "theirs").tensors.values()
    ours = [plan(t.name, t.data.tobytes(), t.dtype, t.shape) for t in tensors]
    write_safetensors(tmp_path / "ours", reversed(ours), {"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_data_begins_at_a_multiple_of_eight(tmp_path: Path) -> None:
    for length in range(1, 9):
        write_safetensors(tmp_path / "m.safetensors", [plan("n" * length, bytes(4))], {})
        (tensor,) = SafetensorsFile(tmp_path / "m.safetensors").tensors.values()
        assert tensor.offset % 8 == 0


def test_the_seeded_model_is_the_one_it_always_was(tmp_path: Path) -> None:
    """Its numbers as they were drawn before tensors were streamed and sorted; every golden trace depends on them."""
    write_seeded_model(tmp_path, SHAPES["seeded"])
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert files == {
        "config.json": "a9394e395596436399533568f5840d56c7f13621a13e3e3df4ed5b64042d83f4",
        "model.safetensors": "48fbf7f4bd86a694f610905f2a63d00c6bc6f3ab07e8ac3524eb189cd7890041",
        "tokenizer.json": "4de3af36db5cd10459bc20ed83b96b3547d0d6a466261e878b57a93aa6b9982a",
    }
    numbers = hashlib.sha256()
    for name, tensor in sorted(SafetensorsFile(tmp_path / "model.safetensors").tensors.items()):
        numbers.update(name.encode() + tensor.dtype.encode() + tensor.data.tobytes())
    assert numbers.hexdigest() == "1f0c337a424ad964cc33fbbe9ec170f9fa8396b0fb79fe5b126c27377a75fef9"


# ---- shards ------------------------------------------------------------------------------------------------------

SIZES = [6, 6, 2, 9, 1, 8, 8, 3, 3, 3, 20, 0, 1]


@pytest.mark.parametrize("limit", [1, 5, 6, 8, 9, 10, 12, 19, 69, 70])
def test_shards_are_those_of_transformers(tmp_path: Path, limit: int) -> None:
    """Its ``save_pretrained`` cuts by this function of huggingface_hub."""
    data = {f"t{i}": bytes([i]) * size for i, size in enumerate(SIZES)}
    write_sharded(tmp_path, [plan(name, raw) for name, raw in data.items()], {"format": "pt"}, limit)
    theirs = split_state_dict_into_shards_factory(
        data, get_storage_size=len, filename_pattern="model{suffix}.safetensors", max_shard_size=limit
    )
    shards = {path.name: path for path in tmp_path.glob("*.safetensors")}
    assert {name: sorted(SafetensorsFile(path).tensors) for name, path in shards.items()} == {
        name: sorted(tensors) for name, tensors in theirs.filename_to_tensors.items()
    }
    if theirs.is_sharded:
        index = json.loads((tmp_path / INDEX).read_text())
        assert index == {"metadata": theirs.metadata, "weight_map": theirs.tensor_to_filename}
    assert len(list(tmp_path.iterdir())) == len(shards) + theirs.is_sharded
    read = SafetensorsFolder(tmp_path).tensors
    assert {name: read[name].data.tobytes() for name in data} == data


def test_the_index_is_text_as_transformers_writes_it(tmp_path: Path) -> None:
    write_sharded(tmp_path, [plan("b", b"12"), plan("a", b"34")], {}, 2)
    assert (tmp_path / INDEX).read_text() == (
        '{\n  "metadata": {\n    "total_size": 4\n  },\n  "weight_map": {\n'
        '    "a": "model-00002-of-00002.safetensors",\n    "b": "model-00001-of-00002.safetensors"\n  }\n}\n'
    )


# ---- what cannot be written --------------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file_and_no_scrap(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_safetensors(path, PLAN[:1], {})
    full = [tensor for tensor in PLAN if tensor.size > 1]
    assert_nothing_is_left(tmp_path, full, lambda tensors: write_safetensors(path, tensors, {}))
    assert list(SafetensorsFile(path).tensors) == ["bf16"]


def test_a_failure_in_any_shard_leaves_none(tmp_path: Path) -> None:
    tensors = [plan(name, bytes(4)) for name in "abcd"]
    assert_nothing_is_left(tmp_path, tensors, lambda plans: write_sharded(tmp_path, plans, {}, 4))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "tensors"),
    [
        ("duplicate-name", [plan("a", b"12"), plan("a", b"12")]),
        ("duplicate-name", [plan("__metadata__", b"12")]),
        ("unknown-dtype", [plan("a", b"12", "I2_S")]),
        ("size-mismatch", [plan("a", b"12", "U8", (3,))]),
        ("size-mismatch", [plan("a", b"12", "F32", (1,))]),
        ("size-mismatch", [plan("a", b"", "U8", (1,))]),
    ],
)
def test_a_plan_that_the_format_cannot_hold(tmp_path: Path, kind: str, tensors: list[PlannedTensor]) -> None:
    for write in (
        lambda: write_safetensors(tmp_path / "m.safetensors", tensors, {}),
        lambda: write_sharded(tmp_path, tensors, {}, 2),
    ):
        error = refusal(write)
        assert (type(error), error.kind) == (OutputError, kind)
        assert repr(tensors[0].name) in str(error)
        assert error.file is not None
        assert list(tmp_path.iterdir()) == []
