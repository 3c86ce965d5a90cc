"""Split GGUF: any shard opens the whole model, and a part of one is never taken for a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from gguf import GGUFValueType as ValueType
from refusals import refusal
from small_models import TINY, as_gguf, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import FormatError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_file import GgufFile, align
from tritgold.formats.gguf_split_writer import write_split
from tritgold.formats.gguf_writer import write_gguf

HEAD, SMALL = "token_embd.weight", 600


@pytest.fixture
def whole(tmp_path: Path) -> GgufFile:
    model = as_gguf(seeded(tmp_path, TINY).write(tmp_path / "hf"), "bitnet-b1.58")
    return GgufFile(model.write(tmp_path / "whole.gguf"))


def shard(whole: GgufFile, number: int, keep: Callable[[str], bool], name: str = "m", **keys: Any) -> Path:
    """Shard ``number`` of 2, as llama.cpp's gguf-split has it: the first with all metadata. keys: other split keys."""
    split = {"split.no": number, "split.count": 2, "split.tensors.count": len(whole.tensors)}
    split |= {key.replace("_", "."): value for key, value in keys.items()}
    pairs = (whole.metadata if number == 0 else {}) | {k: v for k, v in split.items() if v is not None}
    planned = [
        PlannedTensor(t.name, t.dtype, t.shape, t.data.nbytes, lambda t=t: [t.data.tobytes()])  # type: ignore[misc]
        for t in whole.tensors.values()
        if keep(t.name)
    ]
    path = whole.path.with_name(f"{name}-{number + 1:05}-of-00002.gguf")
    write_gguf(path, pairs, planned)
    return path


def pair(whole: GgufFile, name: str = "m", first: Any = None, second: Any = None) -> tuple[Path, Path]:
    return (
        shard(whole, 0, lambda n: n != HEAD, name, **(first or {})),
        shard(whole, 1, lambda n: n == HEAD, name, **(second or {})),
    )


def error_of(path: Path) -> FormatError:
    error = refusal(lambda: open_checkpoint(path))
    assert isinstance(error, FormatError)
    assert error.kind == "split"
    return error


def test_any_shard_opens_the_whole(whole: GgufFile) -> None:
    expected = open_checkpoint(whole.path).model_hash()
    assert [open_checkpoint(path).model_hash() for path in pair(whole)] == [expected, expected]


def test_an_empty_first_shard_is_the_metadata_alone(whole: GgufFile) -> None:
    paths = shard(whole, 0, lambda _: False), shard(whole, 1, lambda _: True)
    expected = open_checkpoint(whole.path).model_hash()
    assert [open_checkpoint(path).model_hash() for path in paths] == [expected, expected]


@pytest.mark.parametrize("number", [0, 1])
def test_a_shard_alone_says_which_it_is(whole: GgufFile, number: int) -> None:
    paths = pair(whole)
    paths[1 - number].unlink()
    tensors = len(whole.tensors)
    has = (tensors - 1, 1)[number]
    error = error_of(paths[number])
    assert f"shard {number + 1} of 2, {has} of {tensors} tensors" in str(error)
    assert paths[1 - number].name in str(error)


def test_a_renamed_shard_says_what_name_it_needs(whole: GgufFile) -> None:
    renamed = pair(whole)[0].rename(whole.path.with_name("renamed.gguf"))
    error = error_of(renamed)
    assert "shard 1 of 2" in str(error)
    assert "NAME-00001-of-00002.gguf" in str(error)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"split_tensors_count": 99}, {}),
        ({"split_tensors_count": None}, {}),
        ({}, {"split_tensors_count": 99}),
        ({"split_no": 1}, {}),
        ({}, {"split_no": 0}),
        ({}, {"split_no": None}),
        ({}, {"split_count": 3}),
        ({}, {"split_count": None}),
        ({"split_count": "2"}, {}),
        ({"split_count": 0}, {}),
    ],
)
def test_keys_that_contradict(whole: GgufFile, first: dict[str, Any], second: dict[str, Any]) -> None:
    error_of(pair(whole, first=first, second=second)[0])


def test_the_only_shard_is_counted_too(whole: GgufFile) -> None:
    keys = {"split_count": 1, "split_tensors_count": 99}
    assert "99 tensors" in str(error_of(shard(whole, 0, lambda _: True, **keys)))
    right = shard(whole, 0, lambda _: True, split_count=1)
    assert open_checkpoint(right).model_hash() == open_checkpoint(whole.path).model_hash()


def test_a_tensor_in_two_shards(whole: GgufFile) -> None:
    total = {"split_tensors_count": len(whole.tensors) + 1}
    shard(whole, 1, lambda n: n == HEAD, **total)
    assert HEAD in str(error_of(shard(whole, 0, lambda _: True, **total)))


def test_all_broken_shards_are_named(whole: GgufFile) -> None:
    model = open_checkpoint(whole.path)
    done = convert(model, whole.path.with_name("n.gguf"), "i2_s", Options(shard_bytes=SMALL))
    assert done.files >= 3
    names = [f"n-{number:05}-of-{done.files:05}.gguf" for number in (2, 3)]
    for name in names:
        whole.path.with_name(name).write_bytes(b"GGUF")
    error = refusal(lambda: open_checkpoint(done.path))
    assert error.kind == "truncated"
    assert f"2 of {done.files} shards cannot be read" in str(error)
    assert all(name in str(error) for name in names)


# ---- writing ------------------------------------------------------------------------------------------------------


def test_what_is_written_in_shards_reads_as_the_whole(whole: GgufFile) -> None:
    model = open_checkpoint(whole.path)
    done = convert(model, whole.path.with_name("n.gguf"), "i2_s", Options(shard_bytes=SMALL))
    files = sorted(whole.path.parent.glob("n-*"))
    assert [f.name for f in files] == [f"n-{i:05}-of-{len(files):05}.gguf" for i in range(1, len(files) + 1)]
    assert done.path == files[0]
    assert not whole.path.with_name("n.gguf").exists()
    for file in files[:: len(files) - 1]:
        assert open_checkpoint(file).model_hash() == model.model_hash()
    assert not list(whole.path.parent.glob("*.part"))


def test_shards_have_the_keys_and_types_that_llama_cpp_asks_for(whole: GgufFile) -> None:
    convert(open_checkpoint(whole.path), whole.path.with_name("n"), "gguf-f32", Options(shard_bytes=SMALL))
    files = sorted(whole.path.parent.glob("n-*"))
    sizes = {"split.no": ValueType.UINT16, "split.count": ValueType.UINT16, "split.tensors.count": ValueType.INT32}
    total = 0
    for number, file in enumerate(files):
        fields = GGUFReader(file).fields
        for key, kind in sizes.items():
            assert fields[key].types == [kind]
        opened = GgufFile(file)
        assert (opened.metadata["split.no"], opened.metadata["split.count"]) == (number, len(files))
        assert number == 0 or set(opened.metadata) == set(sizes)
        bytes_ = sum(align(tensor.data.nbytes, 32) for tensor in opened.tensors.values())
        assert bytes_ <= SMALL or len(opened.tensors) == 1
        total += len(opened.tensors)
    assert total == GgufFile(files[0]).metadata["split.tensors.count"]


def test_a_model_that_fits_is_one_shard(whole: GgufFile) -> None:
    done = convert(open_checkpoint(whole.path), whole.path.with_name("n.gguf"), "i2_s", Options(shard_bytes=10**9))
    assert done.path.name == "n-00001-of-00001.gguf"
    assert open_checkpoint(done.path).model_hash() == open_checkpoint(whole.path).model_hash()


def test_shards_that_were_there_are_replaced_and_a_folder_of_that_name_is_not(whole: GgufFile) -> None:
    target = whole.path.with_name("n.gguf")
    first = whole.path.with_name("n-00001-of-00001.gguf")
    first.write_text("old")
    convert(open_checkpoint(whole.path), target, "i2_s", Options(shard_bytes=10**9))
    assert first.read_bytes()[:4] == b"GGUF"
    first.unlink()
    first.mkdir()
    error = refusal(lambda: convert(open_checkpoint(whole.path), target, "i2_s", Options(shard_bytes=10**9)))
    assert error.kind == "exists"
    assert not list(whole.path.parent.glob("*.part"))


def test_more_shards_than_the_key_counts(tmp_path: Path) -> None:
    tensors = [PlannedTensor(f"t{i}", "I8", (1,), 1, lambda: [b"x"]) for i in range(65_536)]
    error = refusal(lambda: write_split(tmp_path / "n.gguf", {}, tensors, 1))
    assert error.kind == "count"
    assert not list(tmp_path.iterdir())
