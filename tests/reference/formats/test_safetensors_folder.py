"""Checkpoint folders: one file, or shards that agree with their index in both directions. Bug case B62."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import frugal, refusal
from safetensors.numpy import save, save_file

from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.safetensors_file import INDEX
from tritgold.formats.safetensors_folder import SafetensorsFolder


def shards(folder: Path, where: dict[str, str] | None = None) -> None:
    """Tensors a, b in one shard and c in another, and an index that says ``where``."""
    (folder / "1.safetensors").write_bytes(save({"a": np.ones(1, np.float32), "b": np.full(1, 2, np.float32)}))
    (folder / "2.safetensors").write_bytes(save({"c": np.full(1, 3, np.float32)}))
    default = {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}
    index(folder, {"metadata": {"total_size": 12}, "weight_map": default if where is None else where})


def index(folder: Path, content: Any) -> None:
    (folder / INDEX).write_text(content if isinstance(content, str) else json.dumps(content))


def folder_error(folder: Path) -> FormatError:
    with frugal():
        error = refusal(lambda: SafetensorsFolder(folder))
    assert isinstance(error, FormatError)
    return error


def test_shards_are_joined(tmp_path: Path) -> None:
    shards(tmp_path)
    tensors = SafetensorsFolder(tmp_path).tensors
    assert {n: t.floats().item() for n, t in tensors.items()} == {"a": 1, "b": 2, "c": 3}


def test_missing_shards_are_all_named(tmp_path: Path) -> None:
    where = {
        "a": "1.safetensors",
        "b": "1.safetensors",
        "c": "2.safetensors",
        "d": "3.safetensors",
        "e": "4.safetensors",
    }
    shards(tmp_path, where)
    (tmp_path / "2.safetensors").unlink()
    error = folder_error(tmp_path)
    assert error.kind == "shard-missing"
    assert all(f"{n}.safetensors" in str(error) for n in (2, 3, 4))
    assert "1.safetensors" not in str(error)


@pytest.mark.parametrize(
    ("where", "kind", "named"),
    [
        ({"a": "1.safetensors", "c": "2.safetensors"}, "not-in-index", "'b'"),
        ({"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}, "not-in-shard", "'b'"),
        (
            {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors", "d": "2.safetensors"},
            "not-in-shard",
            "'d'",
        ),
    ],
)
def test_index_and_shards_must_agree(tmp_path: Path, where: dict[str, str], kind: str, named: str) -> None:
    shards(tmp_path, where)
    error = folder_error(tmp_path)
    assert error.kind == kind
    assert named in str(error)


@pytest.mark.parametrize(
    ("owner", "copy", "says"),
    [
        ("2.safetensors", 7.0, "says 2.safetensors$"),  # an overlay: the last file too
        ("1.safetensors", 1.0, "says 1.safetensors$"),  # the same bytes
        ("1.safetensors", 7.0, "transformers reads all files in order and keeps the last"),
    ],
)
def test_the_index_decides_between_copies_and_that_is_said(tmp_path: Path, owner: str, copy: float, says: str) -> None:
    shards(tmp_path, {"a": owner, "b": "1.safetensors", "c": "2.safetensors"})
    (tmp_path / "2.safetensors").write_bytes(save({"a": np.full(1, copy, np.float32), "c": np.ones(1, np.float32)}))
    with pytest.warns(TritgoldWarning, match=says):
        tensors = SafetensorsFolder(tmp_path).tensors
    assert tensors["a"].file.name == owner
    assert tensors["a"].floats().item() == (copy if owner == "2.safetensors" else 1)


def test_all_broken_shards_are_named(tmp_path: Path) -> None:
    shards(tmp_path)
    for name in ("1.safetensors", "2.safetensors"):
        (tmp_path / name).write_bytes(b"short")
    error = folder_error(tmp_path)
    assert error.kind == "truncated"
    assert "2 of 2 shards cannot be read" in str(error)
    assert "1.safetensors" in str(error)
    assert "2.safetensors" in str(error)


@pytest.mark.parametrize(
    "name",
    [
        "../1.safetensors",
        "/etc/1.safetensors",
        "sub/1.safetensors",
        "sub\\1.safetensors",
        "C:1.safetensors",
        "..",
        "",
        "1.bin",
        "1.safetensors/",
    ],
)
def test_a_shard_is_a_plain_file_name(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    (inner / "sub").mkdir(parents=True)
    shards(inner)
    for folder in (tmp_path, inner / "sub"):
        shards(folder)
    index(inner, {"weight_map": {"a": name, "b": name, "c": "2.safetensors"}})
    error = folder_error(inner)
    assert error.kind == "index"
    assert repr(name) in str(error)


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "n" * 5000, "\x1b[2J", "a\nb"])
def test_shard_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    shards(tmp_path, {"a": f"{name}.safetensors"})
    assert folder_error(tmp_path).kind in ("shard-missing", "index")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "null",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": null}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": null}}',
        '{"weight_map": "x"}',
        '{"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}}',
        '{"weight_map": {"a": "1.safetensors"}, "weight_map": {"a": "2.safetensors"}}',
        "[" * 100_000,
        "9" * 5000,
    ],
)
def test_what_is_no_index(tmp_path: Path, content: str) -> None:
    shards(tmp_path)
    index(tmp_path, content)
    error = folder_error(tmp_path)
    assert error.kind == "index"
    assert INDEX in str(error)


def test_an_index_that_is_not_utf8(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / INDEX).write_bytes(b'{"\xff')
    assert folder_error(tmp_path).kind == "index"


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "2.safetensors").write_bytes((tmp_path / "2.safetensors").read_bytes()[:-1])
    error = folder_error(tmp_path)
    assert error.kind == "truncated"
    assert "2.safetensors" in str(error)


def test_a_whole_model_beside_an_index_leaves_the_choice_open(tmp_path: Path) -> None:
    shards(tmp_path)
    save_file({"a": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    assert folder_error(tmp_path).kind == "ambiguous"
    (tmp_path / INDEX).unlink()
    assert list(SafetensorsFolder(tmp_path).tensors) == ["a"]


def test_shards_without_an_index_are_ambiguous_and_one_file_is_not(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / INDEX).unlink()
    assert folder_error(tmp_path).kind == "ambiguous"
    (tmp_path / "2.safetensors").unlink()
    assert list(SafetensorsFolder(tmp_path).tensors) == ["a", "b"]
    (tmp_path / "1.safetensors").unlink()
    assert folder_error(tmp_path).kind == "no-weights"


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    assert folder_error(tmp_path).kind == "unreadable"
    (tmp_path / "model.safetensors").rmdir()
    (tmp_path / INDEX).mkdir()
    assert folder_error(tmp_path).kind == "index"


@pytest.mark.parametrize("name", ["model.safetensors", INDEX])
def test_a_fifo_in_the_folder_is_not_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    error = refusal(lambda: SafetensorsFolder(tmp_path))
    assert (error.kind, error.message, error.file) == ("unreadable", "is not a regular file", str(tmp_path / name))
