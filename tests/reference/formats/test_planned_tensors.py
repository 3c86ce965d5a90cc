"""The bytes of a planned tensor: as many as planned, in order, and of one tensor at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plans import plan
from refusals import frugal, refusal

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.safetensors_writer import write_safetensors, write_sharded
from tritgold.formats.sglbitnt_file import write_sglbitnt
from tritgold.formats.whole_file import listed, write_chunks


@pytest.mark.parametrize(
    ("pieces", "got"),
    [([], "0 bytes"), ([b"123"], "3 bytes"), ([b"12", b"345"], "at least 5 bytes"), ([b"1234", b"5"], "at least 5")],
)
def test_pieces_must_be_as_long_as_planned(tmp_path: Path, pieces: list[bytes], got: str) -> None:
    with (tmp_path / "f").open("wb") as file:
        error = refusal(lambda: write_chunks(file, PlannedTensor("a.weight", "U8", (4,), 4, lambda: pieces)))
    assert (type(error), error.kind, error.thing) == (OutputError, "planned-size", "tensor 'a.weight'")
    assert got in str(error)
    assert (tmp_path / "f").stat().st_size <= 4


def test_pieces_are_written_in_order_and_asked_for_one_at_a_time(tmp_path: Path) -> None:
    written = []

    def pieces() -> Iterator[bytes | memoryview]:
        for piece in (b"", b"12", memoryview(b"3456").cast("H"), b""):
            written.append(file.tell())
            yield piece

    with (tmp_path / "f").open("wb", buffering=0) as file:
        write_chunks(file, PlannedTensor("a", "U8", (6,), 6, pieces))  # type: ignore[arg-type]
    assert (tmp_path / "f").read_bytes() == b"123456"
    assert written == [0, 0, 2, 6]


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, tensors: write_safetensors(folder / "m", tensors, {}),
        lambda folder, tensors: write_sharded(folder, tensors, {}, 10_000_000),
        lambda folder, tensors: write_gguf(folder / "m", {}, tensors),
        lambda folder, tensors: write_sglbitnt(folder / "m", {}, tensors, {}),
    ],
    ids=["safetensors", "shards", "gguf", "sglbitnt"],
)
def test_one_tensor_is_in_memory_at_a_time(
    tmp_path: Path, write: Callable[[Path, Iterator[PlannedTensor]], None]
) -> None:
    def made() -> list[bytes]:
        return [bytes(4_000_000)]

    with frugal(megabytes=9):  # the one before may live until the next is made
        write(tmp_path, (PlannedTensor(f"t{i}", "F32", (1_000_000,), 4_000_000, made) for i in range(8)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 32_000_000


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    plans = [plan("a", bytes(1)), plan("b", bytes(1)), plan("a", bytes(2))]
    error = refusal(lambda: listed(tmp_path / "m", iter(plans)))
    assert (type(error), error.kind, error.thing) == (OutputError, "duplicate-name", "tensor 'a'")
    assert listed(tmp_path, iter(plans[:2])) == plans[:2]
