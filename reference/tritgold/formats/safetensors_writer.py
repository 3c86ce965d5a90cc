"""safetensors writer: one file, or shards with an index, one tensor at a time.

The layout is described in safetensors_file.py. Shards are split and named as by transformers' ``save_pretrained``
(huggingface_hub's ``split_state_dict_into_shards_factory``).
"""

import json
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.safetensors_file import INDEX, ITEM_BYTES
from tritgold.formats.untrusted_text import printable
from tritgold.formats.whole_file import listed, write_chunks, written_whole

# The reference writer's order of dtypes: safetensors' enum Dtype, from its last member to its first.
_ORDER = (
    *("U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16"),
    *("F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"),
)


def write_safetensors(path: Path, tensors: Iterable[PlannedTensor], metadata: dict[str, str]) -> None:
    """Write one file; it is written completely or not at all.

    Its bytes are those of the reference writer: tensors by dtype, widest first, then by name, and a header padded with
    spaces to a multiple of 8 bytes, so that all data is aligned.

    Raises OutputError: those of ``written_whole``, and ``duplicate-name``, ``unknown-dtype``, ``size-mismatch``,
    ``planned-size``.
    """
    plan = listed(path, tensors)
    for tensor in plan:
        _check(path, tensor)
    plan.sort(key=lambda tensor: (_ORDER.index(tensor.dtype), tensor.name.encode()))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for tensor in plan:
        begin, end = end, end + tensor.size
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with written_whole(path) as scratch, scratch.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in plan:
            write_chunks(file, tensor)


def write_sharded(folder: Path, tensors: Iterable[PlannedTensor], metadata: dict[str, str], shard_bytes: int) -> None:
    """Write ``model.safetensors``, or shards of at most ``shard_bytes`` with their index, into an existing folder.

    A tensor larger than that gets its own shard. If one shard fails, those already written are removed.
    Raises OutputError as ``write_safetensors`` does.
    """
    shards = split(listed(folder, tensors), shard_bytes)
    if len(shards) <= 1:
        write_safetensors(folder / "model.safetensors", [tensor for shard in shards for tensor in shard], metadata)
        return
    files = [folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    where = {tensor.name: file.name for file, shard in zip(files, shards, strict=True) for tensor in shard}
    total = sum(tensor.size for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    done: list[Path] = []
    try:
        for file, shard in zip(files, shards, strict=True):
            write_safetensors(file, shard, metadata)
            done.append(file)
        with written_whole(folder / INDEX) as scratch:  # last: without it the shards are not a checkpoint
            text = json.dumps(index, indent=2, sort_keys=True) + "\n"
            scratch.write_text(text, encoding="utf-8", newline="")
    except BaseException:
        for file in done:
            file.unlink()
        raise


def split(plan: list[PlannedTensor], shard_bytes: int) -> list[list[PlannedTensor]]:
    """The planned tensors by shard, in order. A tensor of more than ``shard_bytes`` gets its own shard, which is placed
    before the shard that was being filled.

    >>> plan = [PlannedTensor("", "U8", (size,), size, list) for size in (6, 6, 2, 9, 1)]
    >>> [[tensor.size for tensor in shard] for shard in split(plan, 8)]
    [[6], [9], [6, 2], [1]]
    """
    shards: list[list[PlannedTensor]] = []
    current: list[PlannedTensor] = []
    filled = 0
    for tensor in plan:
        if tensor.size > shard_bytes:
            shards.append([tensor])
            continue
        if filled + tensor.size > shard_bytes:
            shards.append(current)
            current, filled = [], 0
        current.append(tensor)
        filled += tensor.size
    return [*shards, current] if current else shards


def _check(path: Path, tensor: PlannedTensor) -> None:
    thing = printable(f"tensor {tensor.name!r}")
    if tensor.name == "__metadata__":
        raise OutputError("is the name of the metadata", kind="duplicate-name", file=path, thing=thing)
    try:
        tensor.name.encode()
    except UnicodeEncodeError as error:
        raise OutputError(f"cannot be UTF-8: {error.reason}", kind="value", file=path, thing=thing) from None
    if tensor.dtype not in ITEM_BYTES:
        expected = ", ".join(ITEM_BYTES)
        raise OutputError(
            "has no such dtype", kind="unknown-dtype", file=path, thing=thing, got=tensor.dtype, expected=expected
        )
    size = prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
    if size != tensor.size:
        got, expected = f"{tensor.size} bytes", f"{size} bytes ({tensor.dtype} {list(tensor.shape)})"
        raise OutputError(
            "size is not shape x dtype", kind="size-mismatch", file=path, thing=thing, got=got, expected=expected
        )
