"""The result of ``tritgold inspect``: whether the file is complete, its container, its layout, and its model.

Everything is examined even if the model cannot be opened: for a file of an unknown packing the result has its contents
and the reason why it is refused. Nothing is guessed: if two layouts fit, both are named (``ambiguous``).
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.architectures import architecture_of
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import FormatError, TritgoldError, TritgoldWarning
from tritgold.formats.container import Container, StoredTensor
from tritgold.formats.fingerprint import is_float
from tritgold.formats.ggml_types import BITNET_FORK
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.layouts import Layouts
from tritgold.formats.untrusted_text import printable
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.inspecting.files import (
    Configuration,
    Linear,
    Opened,
    ReadOptions,
    linears,
    open_container,
    read_config,
    require_written,
)
from tritgold_conformance.inspecting.health import Finding, Look, look, look_at_opened, summary
from tritgold_conformance.inspecting.layouts import Group, decided_layouts, groups
from tritgold_conformance.inspecting.twin import TwinComparison, require_certain, shapes_of

SCHEMA = "tritgold.inspection/2"
NO_MODEL, AMBIGUOUS = 1, 4
# Type of most weights by general.file_type, in the numbering of llama.cpp, ik_llama.cpp and the bitnet.cpp fork; forks
# use 38 to 40 for other types.
_FILE_TYPES: dict[int, tuple[str, ...]] = {
    **{0: ("F32",), 1: ("F16",), 2: ("Q4_0",), 3: ("Q4_1",), 7: ("Q8_0",), 8: ("Q5_0",), 9: ("Q5_1",), 10: ("Q2_K",)},
    **dict.fromkeys((11, 12, 13), ("Q3_K",)),
    **{14: ("Q4_K",), 15: ("Q4_K",), 16: ("Q5_K",), 17: ("Q5_K",), 18: ("Q6_K",), 25: ("IQ4_NL",), 32: ("BF16",)},
    **{36: ("TQ1_0",), 37: ("TQ2_0",), 38: ("TL1", "MXFP4"), 39: ("TL2", "NVFP4"), 40: ("I2_S", "Q1_0"), 41: ("Q2_0",)},
    **{136: ("IQ1_BN",), 137: ("IQ2_BN",), 337: ("IQ2_BN_R4",)},
}
_GUESSED = 1024  # llama.cpp adds this flag if it guessed the type from the tensors
_MOST_FILE_TYPES = 400  # no known program uses higher numbers


@dataclass(frozen=True)
class Examined:
    """The parts of a file that can be read without opening it as a model."""

    file: Opened
    kind: str
    configuration: Configuration
    linears: list[Linear]
    groups: list[Group]


def inspect_model(
    path: Path, asked: ReadOptions, twin: Path | None = None, with_tensors: bool = False
) -> dict[str, Any]:
    """Facts as plain data; ``exit_code`` summarises them.

    ``problem`` is null, or the error with which the model is refused. Raises FormatError for invalid bytes or a
    file with holes, and WeightsError for a twin that cannot decide anything.
    """
    other = None if twin is None else _open_twin(twin)
    examined = _examine(path, asked, shapes_of(other))
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "container": examined.kind,
        "metadata": _metadata(examined.file),
        "types": _types(examined.file),
    }
    model = examined.configuration.model
    rule = model.scale_rule if model and examined.configuration.rule_known else None
    comparison = None if other is None else TwinComparison(other, rule)
    for group in examined.groups if comparison else ():
        comparison.group(group)  # type: ignore[union-attr]
    checkpoint, problem = _open(path, asked, decided_layouts(examined.groups, asked))
    seen = list(_looks(examined, checkpoint, comparison))
    config = checkpoint.config if checkpoint else model
    facts |= {
        "architecture": config and architecture_of(config).name,
        "config": config and config.as_dict(),
        "tokenizer": checkpoint and _tokenizer(checkpoint),
        "weights": _weights(seen, with_tensors),
        "health": summary(seen, [*_of_the_file(examined, checkpoint), *_of_the_refusal(problem, seen)]),
        "fingerprint": [group.as_dict() for group in examined.groups],
        "twin": comparison and comparison.as_dict({linear.name for linear in examined.linears}),
        "problem": problem,
    }
    if with_tensors:
        facts["tensors"] = [_tensor(tensor) for tensor in examined.file.tensors.values()]
    return {**facts, "exit_code": _exit_code(facts)}


def _exit_code(facts: Mapping[str, Any]) -> int:
    """4 where a layout is open; 1 where none fits, or where no model, or not that of the twin, comes out of it; else 0,
    which says that every layout is certain."""
    if any(group["verdict"] == "ambiguous" for group in facts["fingerprint"]):
        return AMBIGUOUS
    differs = facts["twin"] is not None and not facts["twin"]["equal"]
    contradicted = any(group["contradicted"] for group in facts["fingerprint"])
    undecided = any(group["verdict"] != "certain" for group in facts["fingerprint"])
    return NO_MODEL if facts["problem"] or differs or contradicted or undecided else 0


def _examine(path: Path, asked: ReadOptions, truth: Mapping[str, tuple[int, int]]) -> Examined:
    require_written(path)
    file, kind = open_container(path, asked.layouts.q2_0_block)
    configuration = read_config(path, file, asked)
    found = linears(file, configuration)
    return Examined(file, kind, configuration, found, groups(file, found, asked, truth))


def _open_twin(path: Path) -> Checkpoint:
    asked = ReadOptions(Layouts())
    examined = _examine(path, asked, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)
        opened = open_checkpoint(path, layouts=decided_layouts(examined.groups, asked))
    require_certain(examined.groups, path)
    return opened


def _open(path: Path, asked: ReadOptions, layouts: Layouts) -> tuple[Checkpoint | None, dict[str, Any] | None]:
    """The opened model, or the error with which it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)  # health reports the same for every tensor
        try:
            return open_checkpoint(path, asked.linear_class, asked.ignore_keys, layouts), None
        except TritgoldError as error:
            return None, error.as_dict()


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The number of ids with a text, and the number of the model's ids; None without a tokenizer that can be built."""
    try:
        text = checkpoint.tokenizer_json()
        tokens = None if text is None else Tokenizer.from_text(text, checkpoint.path).ids
    except FormatError:
        return None
    return None if tokens is None else {"ids": tokens, "vocab": checkpoint.config.vocab}


def _looks(examined: Examined, checkpoint: Checkpoint | None, comparison: TwinComparison | None) -> Iterator[Look]:
    """Every linear weight, in the order of the file; float weights only if the model could be opened."""
    of_group = {linear.name: group for group in examined.groups for linear in group.linears}
    opened = dict(checkpoint.weights.linears()) if checkpoint else {}
    for linear in examined.linears:
        if (group := of_group.get(linear.name)) is not None:
            layout = group.packing()
            label = next((h.label for h in group.merged if h.layout is layout), "")
            yield look(linear, layout, group.shape(linear, label))
        elif is_float(linear.stored) and linear.name in opened:
            if comparison:
                comparison.opened(linear, opened[linear.name])
            yield look_at_opened(linear, opened[linear.name])
        else:
            yield Look(linear, linear.shape)


def _of_the_file(examined: Examined, checkpoint: Checkpoint | None) -> Iterator[Finding]:
    """Findings about the whole file."""
    for text in examined.configuration.warned:
        yield Finding("configuration", text)
    file = examined.file
    if isinstance(file, GgufFile):
        number = file.metadata.get("general.file_type")
        number = number & ~_GUESSED if isinstance(number, int) and number >= 0 else None
        labels = _FILE_TYPES.get(number, ()) if number is not None else ()
        types = sorted({linear.stored.dtype for linear in examined.linears})
        if labels and not set(labels) & set(types):
            there, called = ", ".join(types) or "not there", " or ".join(labels)
            yield Finding("file-type", f"general.file_type calls the file {called}, but its linear weights are {there}")
        elif number is not None and number > _MOST_FILE_TYPES:
            yield Finding("file-type", f"general.file_type is {number}, which is not defined")
    for head, embedding in (("output.weight", "token_embd.weight"), ("lm_head.weight", "model.embed_tokens.weight")):
        first, second = file.tensors.get(head), file.tensors.get(embedding)
        if checkpoint and first and second and first.dtype == second.dtype and np.array_equal(first.data, second.data):
            what = f"{head} repeats {embedding} bit for bit: {first.data.size:,} bytes that a tied head would save"
            yield Finding("head-copy", what)


def _of_the_refusal(problem: Mapping[str, Any] | None, seen: list[Look]) -> Iterator[Finding]:
    """The refusal of non-finite values outside the examined linears: in the embedding, a gain, master weights."""
    known = any("non-finite" in finding.kind for tensor in seen for finding in tensor.findings)
    if problem is not None and problem["kind"].endswith("non-finite") and not known:
        where = f"{printable(problem['thing'])}: " if problem["thing"] else ""
        yield Finding(problem["kind"], where + printable(problem["message"], 2000))


def _metadata(container: Container) -> dict[str, Any]:
    """The container's metadata; of long lists only the length."""
    found = getattr(container, "metadata", {})
    return {key: _short(value) for key, value in found.items()}


def _short(value: Any) -> Any:
    if isinstance(value, (list, np.ndarray)):
        return f"{len(value)} items"
    return value if isinstance(value, (int, float, bool)) and np.isfinite(value) else printable(value)


def _types(container: Container) -> dict[str, dict[str, int]]:
    """Number of tensors and bytes by type; in a GGUF file with the type's number, which forks use for other types."""
    ids = container.type_ids if isinstance(container, GgufFile) else {}
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name, tensor in container.tensors.items():
        shown = tensor.dtype
        if name in ids:
            fork = ", bitnet.cpp fork" if tensor.dtype in BITNET_FORK.values() else ""
            shown = f"{tensor.dtype} (type {ids[name]}{fork})"
        counts[shown] += 1
        sizes[shown] += int(tensor.data.size)
    return {dtype: {"tensors": counts[dtype], "bytes": sizes[dtype]} for dtype in sorted(counts)}


def _tensor(tensor: StoredTensor) -> dict[str, Any]:
    place = {"offset": tensor.offset, "bytes": int(tensor.data.size), "file": tensor.file.name}
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), **place}


def _weights(seen: list[Look], by_tensor: bool) -> dict[str, Any] | None:
    """Ternary weights: count, distribution, bits per weight and scales; None if none could be read."""
    read = [tensor for tensor in seen if tensor.trits is not None]
    if not read:
        return None
    total = np.array([tensor.trits for tensor in read], np.int64).sum(axis=0)
    stored = sum(int(tensor.linear.stored.data.size) + tensor.linear.beside_bytes for tensor in read)
    weights = sum(int(np.prod(tensor.shape)) for tensor in read if tensor.shape)
    scales = [scale for tensor in read if tensor.scales for scale in tensor.scales if np.isfinite(scale)]
    return {
        "ternary": int(total.sum()),
        "histogram": dict(zip(("-1", "0", "+1"), total.tolist(), strict=True)),
        "bits_per_weight": round(8 * stored / weights, 4),
        "masters": all(is_float(tensor.linear.stored) for tensor in read),
        "scale_range": [min(scales), max(scales)] if scales else None,
        "linears": [tensor.as_dict() for tensor in seen] if by_tensor else None,
    }
