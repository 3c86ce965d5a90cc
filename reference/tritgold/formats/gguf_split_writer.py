"""Write a GGUF model in several files, with the names and keys of llama.cpp's gguf-split; gguf_split.py reads them.

Source: llama.cpp ``tools/gguf-split``; its loader requires uint16, uint16 and int32 for the three keys.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_file import DEFAULT_ALIGNMENT, align
from tritgold.formats.gguf_split import COUNT_KEY, NUMBER_KEY, TENSORS_KEY
from tritgold.formats.gguf_writer import Value, write_gguf
from tritgold.formats.whole_file import listed

MAX_COUNT = 65_535  # a uint16


def write_split(path: Path, metadata: Mapping[str, Value], tensors: Iterable[PlannedTensor], most: int) -> list[Path]:
    """Write shards, each of at most ``most`` bytes of tensors with their padding; returns their paths in order.

    path: the name of the model, with or without ``.gguf``. The first shard has the metadata. A tensor larger than
    ``most`` gets its own shard. Each shard is written completely or not at all; the first shard is written last.
    Raises OutputError as ``write_gguf`` does, and ``count`` for more than 65,535 shards (the count is a uint16).
    """
    plan = listed(path, tensors)
    shards = in_shards(plan, most)
    if len(shards) > MAX_COUNT:
        what, expected = "would be too many shards", f"at most {MAX_COUNT}"
        raise OutputError(what, kind="count", file=path, got=len(shards), expected=expected, hint="make them larger")
    paths = [shard_path(path, number, len(shards)) for number in range(1, len(shards) + 1)]
    architecture = str(metadata.get("general.architecture", ""))
    for number in reversed(range(len(shards))):
        keys: dict[str, Value] = dict(metadata) if number == 0 else {}
        keys |= {NUMBER_KEY: np.uint16(number), COUNT_KEY: np.uint16(len(shards)), TENSORS_KEY: np.int32(len(plan))}
        write_gguf(paths[number], keys, shards[number], architecture=architecture)
    return paths


def in_shards(plan: list[PlannedTensor], most: int) -> list[list[PlannedTensor]]:
    """The planned tensors by shard, in order; a new shard begins where the next tensor would exceed ``most`` bytes.

    >>> plan = [PlannedTensor("", "I8", (size,), size, list) for size in (64, 32, 500, 1)]
    >>> [[tensor.size for tensor in shard] for shard in in_shards(plan, 96)]
    [[64, 32], [500], [1]]
    """
    shards: list[list[PlannedTensor]] = [[]]
    filled = 0
    for tensor in plan:
        size = align(tensor.size, DEFAULT_ALIGNMENT)
        if shards[-1] and filled + size > most:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += size
    return shards


def shard_path(path: Path, number: int, count: int) -> Path:
    """The path of shard ``number``, from 1, of the model named ``path``.

    >>> shard_path(Path("model.gguf"), 1, 3).name
    'model-00001-of-00003.gguf'
    """
    return path.with_name(f"{path.name.removesuffix('.gguf')}-{number:05}-of-{count:05}.gguf")
