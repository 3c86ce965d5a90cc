"""Prepared weights: found again bit for bit, made again where they are damaged, never those of something else."""

import os
import shutil
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import TritgoldWarning
from tritgold.formats.container import StoredTensor
from tritgold.golden import embedded_model
from tritgold_xla import XlaEngine
from tritgold_xla.kv_cache.base import positions
from tritgold_xla.parameters import load_parameters
from tritgold_xla.place import Place
from tritgold_xla.weights_cache import entry as entries
from tritgold_xla.weights_cache import key as keys
from tritgold_xla.weights_cache import prepared
from tritgold_xla.weights_cache.prepared import KeptWeights, prepared_parameters

CAPACITY = 16
DEVICE = jax.devices("cpu")[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The seeded model in a folder of its own, an hour old."""
    folder = tmp_path_factory.mktemp("model") / "seeded"
    with embedded_model("seeded") as path:
        if path.is_dir():
            shutil.copytree(path, folder)
        else:
            shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(model):
    return open_checkpoint(model)


@pytest.fixture(scope="module")
def made(checkpoint):
    return load_parameters(checkpoint.config, checkpoint.weights, CAPACITY, Place(DEVICE))


@pytest.fixture(scope="module")
def filled(checkpoint, tmp_path_factory):
    """A folder with the entry of the model, to be copied."""
    folder = tmp_path_factory.mktemp("kept") / "weights"
    load(checkpoint, KeptWeights(folder, least=0))
    return folder


@pytest.fixture
def kept(filled, tmp_path):
    return KeptWeights(Path(shutil.copytree(filled, tmp_path / "weights")), least=0)


def load(checkpoint, kept, capacity=CAPACITY):
    return prepared_parameters(kept, checkpoint.config, checkpoint.weights, capacity, DEVICE)


def folders(kept):
    return sorted(path.parent for path in kept.folder.glob("*/entry.json"))


def nothing_is_made(monkeypatch):
    monkeypatch.setattr(prepared, "load_parameters", lambda *_: pytest.fail("made again"))


def assert_same(found, made):
    assert jax.tree.structure(found) == jax.tree.structure(made)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(made), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_the_second_start_maps_what_the_first_has_made(checkpoint, made, kept, monkeypatch):
    nothing_is_made(monkeypatch)
    found = load(checkpoint, kept)
    assert_same(found, made)
    assert (found.head is found.embedding) == (made.head is made.embedding)
    (folder,) = folders(kept)
    if (maps := Path("/proc/self/maps")).exists():
        mapped = {line.split()[-1] for line in maps.read_text().splitlines()}
        assert str(folder / "embedding.npy") in mapped, "in memory once, as the system's own copy of the file"
    bits = np.asarray(found.layers.linears["q"].planes.bits)
    assert found.layers.linears["q"].planes.bits.unsafe_buffer_pointer() == bits.ctypes.data


def test_a_warm_start_releases_the_pages_of_the_checkpoint(checkpoint, kept, monkeypatch):
    released = []
    monkeypatch.setattr(StoredTensor, "release", lambda tensor, *range: released.append(tensor.name))
    nothing_is_made(monkeypatch)
    load(checkpoint, kept)
    assert {tensor.name for tensor in keys.stored_tensors(checkpoint.weights)} == set(released) != set()


def test_an_engine_on_kept_weights_gives_the_same_bits(checkpoint, kept):
    tokens = [1, 2, 3]
    engines = [XlaEngine(checkpoint.config, checkpoint.weights, 64, kept_weights=where) for where in (None, kept)]
    np.testing.assert_array_equal(*(engine.prefill(tokens) for engine in engines))


def test_an_untied_head_and_another_capacity(tmp_path, checkpoint, made, kept, monkeypatch):
    nothing_is_made(monkeypatch)
    assert load(checkpoint, kept, capacity=9).sin.shape[0] == positions(9)
    untied = made._replace(head=-made.embedding)
    entries.write_entry(tmp_path, prepared._flat(untied))
    tree = prepared._nested(entries.read_entry(tmp_path))
    assert np.asarray(untied.head).tobytes() == tree["head"].tobytes()
    assert set(tree) == {"embedding", "layers", "final_norm", "head"}


def test_what_is_in_memory_or_small_is_not_kept(checkpoint, tmp_path):
    prepared_parameters(KeptWeights(tmp_path / "w", least=0), LLAMA, make_weights(LLAMA), CAPACITY, DEVICE)
    load(checkpoint, KeptWeights(tmp_path / "w"))
    assert not (tmp_path / "w").exists()


def overwrite(file, at, data):
    with file.open("r+b") as opened:
        opened.seek(at, os.SEEK_END)
        opened.write(data)


DAMAGE = {
    "a-byte": lambda f: overwrite(f / "layers.linears.q.planes.bits.npy", -77, b"\x5a"),
    "cut": lambda f: os.truncate(f / "embedding.npy", (f / "embedding.npy").stat().st_size - 1),
    "missing": lambda f: (f / "final_norm.npy").unlink(),
    "empty": lambda f: os.truncate(f / "embedding.npy", 0),
    "no-array": lambda f: (f / "embedding.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}"),
    "another-array": lambda f: np.save(f / "final_norm.npy", np.zeros(3, np.float32)),
    "index-cut": lambda f: os.truncate(f / "entry.json", 40),
    "index-other": lambda f: (f / "entry.json").write_text('{"schema": "tritgold.xla-weights/2", "arrays": {}}'),
    "index-elsewhere": lambda f: (f / "entry.json").write_text(
        (f / "entry.json").read_text().replace('"final_norm"', '"../final_norm"')
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_said_thrown_away_and_made_again(name, checkpoint, made, kept):
    (folder,) = folders(kept)
    DAMAGE[name](folder)
    with pytest.warns(TritgoldWarning, match=r"is damaged.*found.*expected.*\[weights-cache\].*made again"):
        assert_same(load(checkpoint, kept), made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entries.read_entry(folder)


def test_what_is_left_of_an_entry_gives_way(checkpoint, made, kept, monkeypatch):
    (folder,) = folders(kept)
    (folder / "entry.json").unlink()
    assert_same(load(checkpoint, kept), made)
    nothing_is_made(monkeypatch)
    assert_same(load(checkpoint, kept), made)


def test_what_a_disk_does_not_give_back_is_not_kept(checkpoint, made, tmp_path, monkeypatch):
    right = np.save

    def lies(file, array, **options):
        right(file, array, **options)
        overwrite(file, -1, b"\x7f")

    monkeypatch.setattr(entries.np, "save", lies)
    where = KeptWeights(tmp_path / "w", least=0)
    with pytest.warns(TritgoldWarning, match=r"not kept: .*expected the one that was written \[weights-cache\]"):
        assert_same(load(checkpoint, where), made)
    assert folders(where) == []


def test_a_folder_that_cannot_be_written(checkpoint, made, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(TritgoldWarning, match="prepared weights are not kept"):
        assert_same(load(checkpoint, KeptWeights(tmp_path / "file" / "w", least=0)), made)


def test_of_two_processes_that_start_at_once_one_is_first(checkpoint, made, filled, tmp_path, monkeypatch):
    where = KeptWeights(tmp_path / "w", least=0)

    def meanwhile(*arguments):
        shutil.copytree(filled, where.folder, dirs_exist_ok=True)
        return load_parameters(*arguments)

    monkeypatch.setattr(prepared, "load_parameters", meanwhile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(load(checkpoint, where), made)
    assert len(folders(where)) == 1
    assert not list(where.folder.glob("*.part"))


def test_room_is_made_by_what_was_used_longest_ago(checkpoint, kept):
    (folder,) = folders(kept)
    size = sum(file.stat().st_size for file in folder.iterdir())
    for age, name in ((50, "old"), (10, "young")):
        other = shutil.copytree(folder, folder.with_name(name))
        then = time.time() - age
        os.utime(other / "entry.json", (then, then))
    left = shutil.copytree(folder, kept.folder / "x.12345678.part")
    os.utime(left, (0, 0))
    os.utime(folder / "entry.json", (0, 0))
    load(checkpoint, kept)  # used now
    prepared._make_room(kept.folder, size, int(3.5 * size))
    assert [path.name for path in folders(kept)] == sorted([folder.name, "young"])
    assert not left.exists()
    with pytest.raises(prepared.OutputError) as refused:
        prepared._make_room(kept.folder, size, size - 1)
    assert refused.value.kind == "cache-limit"


class _Inner(NamedTuple):
    a: int


class _Outer(NamedTuple):
    inner: _Inner | None
    several: dict[str, _Inner]
    empty: dict[str, int]
    missing: int | None = None


def test_dictionaries_become_the_named_tuples_that_the_fields_say():
    found = prepared._typed(_Outer, {"inner": {"a": 1}, "several": {"x": {"a": 2}}})
    assert found == _Outer(_Inner(1), {"x": _Inner(2)}, {})
    assert type(found.several["x"]) is _Inner


def test_more_than_the_limit_is_not_kept(checkpoint, made, tmp_path):
    with pytest.warns(TritgoldWarning, match=r"not kept: .*\[cache-limit\]"):
        assert_same(load(checkpoint, KeptWeights(tmp_path / "w", most=1000, least=0)), made)


def test_other_code_makes_other_entries(checkpoint, kept, monkeypatch):
    monkeypatch.setattr(keys, "made_by", lambda: "another version")
    load(checkpoint, kept)
    assert len(folders(kept)) == 2


def test_the_code_is_hashed_file_by_file(monkeypatch):
    before = keys.made_by.__wrapped__()
    assert keys.made_by.__wrapped__() == before
    right = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda file: right(file) + b"\n" * (file.name == "planes.py"))
    assert keys.made_by.__wrapped__() != before
