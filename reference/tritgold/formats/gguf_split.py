"""A GGUF model in several files, as llama.cpp's gguf-split writes it: the path of any shard opens the whole model.

Each shard is a GGUF file with ``split.no`` (from 0), ``split.count`` and ``split.tensors.count`` (of all shards
together); the first has the model's metadata. The others are found by name: ``NAME-00002-of-00003.gguf``.
``gguf_split_writer`` is the inverse.
"""

import re
from pathlib import Path
from typing import NoReturn

from tritgold.errors import FormatError
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.untrusted_text import printable

NUMBER_KEY, COUNT_KEY, TENSORS_KEY = "split.no", "split.count", "split.tensors.count"
MAX_SHARDS = 99_999  # five digits in the name
_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")


def open_gguf(path: str | Path, q2_0_block: int = 64) -> GgufFile:
    """Open a GGUF file, or all the shards of one: metadata of the first shard, tensors of all in order.

    path: any of the shards. Raises FormatError as GgufFile does, and of kind ``split`` if a shard is missing, its
    keys contradict its name or the first shard's keys, two shards hold the same tensor, or the number of tensors is
    not the one that the first shard gives.
    """
    opened = GgufFile(path, q2_0_block)
    count = _number(opened, COUNT_KEY, 1)
    if count is None:
        return opened
    if count == 1:
        _check_shard(opened, 0, 1)
        _check_total(opened, [opened])
        return opened
    paths = _siblings(opened, count)
    number = _number(opened, NUMBER_KEY, 0)
    if number is None or number >= count or paths[number].name != opened.path.name:
        _refuse(opened, "has a name that contradicts its keys", NUMBER_KEY, number, f"0 to {count - 1}, as in the name")
    missing = [other.name for other in paths if not other.is_file()]
    if missing:
        total, has = _number(opened, TENSORS_KEY, 0), len(opened.tensors)
        of = f"{has} tensors" if total is None else f"{has} of {total} tensors"
        what = f"is shard {number + 1} of {count}, {of}; the others are not all there"
        hint = "put all shards in one folder under the names that gguf-split gave them"
        _refuse(opened, what, COUNT_KEY, f"no {printable(', '.join(missing[:4]))}", f"{count} files", hint)
    shards = _opened(paths, opened, number, q2_0_block)
    first = shards[0]
    for index, shard in enumerate(shards):
        _check_shard(shard, index, count)
    _check_total(first, shards)
    for shard in shards[1:]:
        _join(first, shard)
    return first


def shard_paths(path: Path) -> list[Path]:
    """The existing files of the model that ``path`` belongs to, found by name only; ``path`` itself if none exists.

    >>> shard_paths(Path("model.gguf"))
    [PosixPath('model.gguf')]
    """
    found = _NAME.fullmatch(path.name)
    if not found:
        return [path]
    siblings = path.parent.glob("*-of-*.gguf") if path.parent.is_dir() else []
    whole = [p for p in siblings if (n := _NAME.fullmatch(p.name)) and (n[1], n[3]) == (found[1], found[3])]
    return sorted(whole) or [path]


def _opened(paths: list[Path], opened: GgufFile, number: int, q2_0_block: int) -> list[GgufFile]:
    """All shards in order. If several are broken, one error lists them all."""
    shards: list[GgufFile] = []
    broken: list[FormatError] = []
    architecture = ""
    for index, path in enumerate(paths):
        try:
            shard = opened if index == number else GgufFile(path, q2_0_block, architecture)
        except FormatError as error:
            broken.append(error)
            continue
        architecture = architecture or shard.architecture
        shards.append(shard)
    if len(broken) == 1:
        raise broken[0]
    if broken:
        lines = "".join(f"\n  {error}" for error in broken)
        what = f"{len(broken)} of {len(paths)} shards cannot be read:{lines}\n"
        raise FormatError(what, kind=broken[0].kind, file=opened.path, hint="download these again")
    return shards


def _siblings(opened: GgufFile, count: int) -> list[Path]:
    name = _NAME.fullmatch(opened.path.name)
    if count > MAX_SHARDS or not name or int(name[3]) != count:
        number, total = _number(opened, NUMBER_KEY, 0), _number(opened, TENSORS_KEY, 0)
        shard = "a shard" if number is None else f"shard {number + 1}"
        what = (
            f"is {shard} of {count}, {len(opened.tensors)} of {total} tensors, and its name does not lead to the others"
        )
        expected = f"NAME-00001-of-{count:05}.gguf"
        hint = "give the shards the names that gguf-split gave them, or merge them with llama.cpp's gguf-split --merge"
        _refuse(opened, what, COUNT_KEY, printable(opened.path.name), expected, hint)
    return [opened.path.with_name(f"{name[1]}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]


def _check_shard(shard: GgufFile, index: int, count: int) -> None:
    for key, least, expected in ((NUMBER_KEY, 0, index), (COUNT_KEY, 1, count)):
        if (found := _number(shard, key, least)) != expected:
            _refuse(shard, f"is not shard {index + 1} of {count}", key, found, expected, "take all shards of one model")


def _check_total(first: GgufFile, shards: list[GgufFile]) -> None:
    found = sum(len(shard.tensors) for shard in shards)
    for shard in shards:
        total = _number(shard, TENSORS_KEY, 0)
        if total is None and shard is first:
            _refuse(first, "is missing", TENSORS_KEY, None, found)
        if total not in (None, found):
            what = f"{len(shards)} of {len(shards)} shards, {found} of {total} tensors"
            _refuse(shard, what, TENSORS_KEY, found, total, "take all shards of one model, each whole")


def _join(first: GgufFile, shard: GgufFile) -> None:
    twice = next((name for name in shard.tensors if name in first.tensors), None)
    if twice is not None:
        thing = printable(f"tensor {twice!r}")
        raise FormatError("lies in two shards", kind="split", file=shard.path, thing=thing, expected="one of them")
    first.tensors |= shard.tensors
    first.type_ids |= shard.type_ids
    first.spans |= shard.spans


def _number(file: GgufFile, key: str, least: int) -> int | None:
    value = file.metadata.get(key)
    if value is None:
        return None
    if type(value) is not int or value < least:
        _refuse(file, "is not a number of shards or tensors", key, printable(repr(value)), f"an integer from {least}")
    return value


def _refuse(file: GgufFile, message: str, key: str, got: object, expected: object, hint: str | None = None) -> NoReturn:
    thing = f"key {key!r}"
    raise FormatError(message, kind="split", file=file.path, thing=thing, got=got, expected=expected, hint=hint)
