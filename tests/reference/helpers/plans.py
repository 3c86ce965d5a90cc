"""Planned tensors for the writers: right ones, and ones that fail on purpose."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tritgold.formats.container import PlannedTensor

# What may end a write; the last two are not Exception.
ENDINGS = [ValueError("a bug"), MemoryError(), KeyboardInterrupt(), SystemExit(1)]


def plan(name: str, data: bytes, dtype: str = "U8", shape: tuple[int, ...] | None = None) -> PlannedTensor:
    """A tensor of these bytes, made in two pieces."""
    half = len(data) // 2
    return PlannedTensor(name, dtype, shape or (len(data),), len(data), lambda: [data[:half], data[half:]])


def failing(tensor: PlannedTensor, ending: BaseException) -> PlannedTensor:
    """Its first piece, then the ending."""

    def chunks() -> Iterator[bytes | memoryview]:
        yield next(iter(tensor.chunks()))
        raise ending

    return replace(tensor, chunks=chunks)


def short(tensor: PlannedTensor) -> PlannedTensor:
    """Its first piece alone."""
    return replace(tensor, chunks=lambda: [next(iter(tensor.chunks()))])


def long(tensor: PlannedTensor) -> PlannedTensor:
    """A byte too many."""
    return replace(tensor, chunks=lambda: [*tensor.chunks(), b"x"])


def assert_nothing_is_left(
    folder: Path, tensors: list[PlannedTensor], write: Callable[[Iterable[PlannedTensor]], object]
) -> None:
    """Every tensor in turn fails in every way; ``write`` must end with that and leave the folder as it was."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for index, tensor in enumerate(tensors):
        ways = [(failing(tensor, ending), type(ending)) for ending in ENDINGS]
        for bad, expected in [*ways, (short(tensor), Exception), (long(tensor), Exception)]:
            with pytest.raises(expected) as caught:
                write([*tensors[:index], bad, *tensors[index + 1 :]])
            if expected is Exception:
                assert getattr(caught.value, "kind", None) == "planned-size", caught.value
            assert {path: path.read_bytes() for path in folder.iterdir()} == before
