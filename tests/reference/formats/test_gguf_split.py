"""Split GGUF: any shard opens the whole model, and a part of one is never taken for a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal
from small_models import TINY, as_gguf, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import FormatError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf

HEAD = "token_embd.weight"


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
