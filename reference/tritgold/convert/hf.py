"""Convert a checkpoint to a Hugging Face folder: packed uint8 linears with a weight_scale, config.json, text files."""

import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tritgold.architectures import architecture_of
from tritgold.convert.config_json import config_json
from tritgold.convert.floats import matrix_dtype, narrowest, planned, planned_matrix
from tritgold.convert.plan import Plan
from tritgold.convert.wanted import Wanted
from tritgold.errors import TritgoldWarning
from tritgold.formats.container import PlannedTensor
from tritgold.formats.names import HF, hf_names, written_name
from tritgold.formats.packings import packing
from tritgold.formats.safetensors_writer import write_sharded
from tritgold.formats.special_tokens import GENERATION, generation_eos, generation_with
from tritgold.formats.texts.side_texts import CONFIG, other_files
from tritgold.weights import LINEARS, VECTORS


@dataclass
class HfPlan(Plan):
    """texts: the text files, name -> text. copied: files of the source to copy. shard_bytes: the most per file."""

    texts: dict[str, str] = field(default_factory=dict)
    copied: list[Path] = field(default_factory=list)
    shard_bytes: int = 0

    def write(self, path: Path) -> None:
        """Write into ``path``, an existing, empty folder."""
        for name, text in self.texts.items():
            (path / name).write_bytes(text.encode())
        for file in self.copied:
            shutil.copyfile(file, path / file.name)
        write_sharded(path, self.tensors, {"format": "pt"}, self.shard_bytes)


def plan_hf(wanted: Wanted, texts: dict[str, str], embedding: str | None, shard_bytes: int) -> HfPlan:
    """Plan the folder. texts: of the source. embedding: F32, F16 or BF16, or None to keep the source's."""
    floats = matrix_dtype(wanted.matrix("embedding"), embedding, wanted.widened)
    texts = dict(texts)
    if GENERATION in texts and not _gives_eos(wanted, texts[GENERATION]):
        texts[GENERATION] = generation_with(texts[GENERATION], wanted.config.eos)
    texts[CONFIG] = config_json(wanted, texts, floats, texts.get(GENERATION))
    plan = HfPlan(texts=texts, copied=other_files(wanted.source.path), shard_bytes=shard_bytes)
    plan.tensors = list(_tensors(wanted, plan, embedding))
    if odd := [name for name, (rows, _) in wanted.shapes().items() if rows % 4]:
        what = (
            f"{odd[0]} and {len(odd) - 1} more have rows that are no multiple of 4: transformers refuses such a shape"
        )
        warnings.warn(what, TritgoldWarning, stacklevel=2)
    return plan


def _gives_eos(wanted: Wanted, text: str) -> bool:
    """Whether a generation_config.json has the source's stop ids. In a GGUF source it may not: there the keys decide.

    Raises ConfigError for a text that is not a generation_config.json.
    """
    found = generation_eos(text, wanted.source.path)
    return found is None or tuple(t for t in found if 0 <= t < wanted.config.vocab) == wanted.config.eos


def _tensors(wanted: Wanted, plan: HfPlan, embedding: str | None) -> Iterator[PlannedTensor]:
    weights, entry = wanted.source.weights, architecture_of(wanted.config)
    names = hf_names(entry)

    def vector(name: str, values: np.ndarray) -> PlannedTensor:
        stored = values - np.float32(entry.gain_offset) if entry.gain_offset and "norm" in name else values
        return planned(written_name(names, name), stored, narrowest(stored))

    for name in ("embedding", "head") if weights.head is not None else ("embedding",):
        matrix = wanted.matrix(name)
        yield planned_matrix(written_name(HF, name), matrix, matrix_dtype(matrix, embedding, wanted.widened))
    for index, layer in enumerate(weights.layers):
        for norm in VECTORS:
            if (gain := getattr(layer, norm)) is not None:
                yield vector(f"layers.{index}.{norm}", gain)
        for linear in LINEARS:
            yield from _linear(wanted, plan, f"layers.{index}.{linear}")
    yield vector("final_norm", weights.final_norm)


def _linear(wanted: Wanted, plan: HfPlan, name: str) -> Iterator[PlannedTensor]:
    rows, columns = shape = wanted.shapes()[name]
    layout, stored_as = packing("hf"), written_name(HF, name)
    size = layout.packed_size(shape)
    plan.linear_bytes += size
    scale = plan.scales[name] = wanted.scale(name)
    yield PlannedTensor(
        stored_as, "U8", (-(-rows // 4), columns), size, lambda: (layout.pack(wanted.linear(name).trits),)
    )
    one = np.array([scale], np.float32)
    yield planned(stored_as.removesuffix(".weight") + ".weight_scale", one, narrowest(one))
