"""A checkpoint as a Hugging Face folder: packed uint8 linears with a weight_scale, config.json, the text files."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tritgold.convert.floats import matrix_dtype, narrowest, planned, planned_matrix
from tritgold.convert.wanted import Wanted
from tritgold.errors import ConfigError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.hf_config import read_hf_config
from tritgold.formats.hf_config_writer import hf_config
from tritgold.formats.names import HF, candidates
from tritgold.formats.packing import packing
from tritgold.formats.safetensors_writer import write_sharded
from tritgold.weights import LINEARS, NORMS

CONFIG = "config.json"


@dataclass
class HfPlan:
    """tensors: in the order of the file. texts: the files beside them, by name; config.json only if it fits."""

    wanted: Wanted
    tensors: list[PlannedTensor]
    texts: dict[str, str]
    shard_bytes: int
    scales: dict[str, np.float32] = field(default_factory=dict)
    other_type: dict[str, str] = field(default_factory=dict)
    linear_bytes: int = 0

    def write(self, folder: Path) -> None:
        """Into an existing, empty folder."""
        for name, text in self.texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        if not self._says_what_is_wanted(folder / CONFIG):
            text = json.dumps(hf_config(self.wanted.config), indent=2) + "\n"
            (folder / CONFIG).write_text(text, encoding="utf-8", newline="")
        write_sharded(folder, self.tensors, {"format": "pt"}, self.shard_bytes)

    def _says_what_is_wanted(self, path: Path) -> bool:
        """Whether the source's own config.json describes the target as well; then it stays, byte for byte."""
        try:
            read = read_hf_config(path)
        except ConfigError:
            return False
        return read.model == self.wanted.config and read.mode == "offline"


def plan_hf(wanted: Wanted, texts: dict[str, str], embedding: str | None, shard_bytes: int) -> HfPlan:
    """embedding: F32, F16, BF16, or None to keep the source's."""
    plan = HfPlan(wanted, [], texts, shard_bytes)
    plan.tensors = list(_tensors(wanted, plan, embedding))
    return plan


def _tensors(wanted: Wanted, plan: HfPlan, embedding: str | None) -> Iterator[PlannedTensor]:
    """In the order of a state_dict: embedding, layers with their linears where modules have them, norm, head."""
    weights = wanted.source.weights
    yield _matrix(wanted, "embedding", embedding)
    for index, layer in enumerate(weights.layers):
        at = f"layers.{index}"
        for norm in NORMS:
            if (gain := getattr(layer, norm)) is not None:
                yield planned(_name(f"{at}.{norm}"), gain, narrowest(gain))
        for linear in LINEARS:
            yield from _linear(wanted, plan, f"{at}.{linear}")
    yield planned(_name("final_norm"), weights.final_norm, narrowest(weights.final_norm))
    if weights.head is not None:
        yield _matrix(wanted, "head", embedding)


def _linear(wanted: Wanted, plan: HfPlan, name: str) -> Iterator[PlannedTensor]:
    rows, columns = shape = wanted.shapes()[name]
    layout, stored_as = packing("hf"), _name(name)
    packed = (-(-rows // 4), columns)

    def chunks() -> Iterator[bytes]:
        yield layout.pack(wanted.linear(name).trits)

    plan.linear_bytes += layout.packed_size(shape)
    yield PlannedTensor(stored_as, "U8", packed, layout.packed_size(shape), chunks)
    scale = wanted.linear(name).scale.reshape(1)
    plan.scales[name] = scale[0]
    yield planned(stored_as.removesuffix(".weight") + ".weight_scale", scale, narrowest(scale))


def _matrix(wanted: Wanted, name: str, dtype: str | None) -> PlannedTensor:
    weights = wanted.source.weights
    matrix = weights.embedding if name == "embedding" else weights.head
    assert isinstance(matrix, StoredTensor)  # every checkpoint from disk has its matrices there
    return planned_matrix(_name(name), matrix, matrix_dtype(matrix, dtype, wanted.widened))


def _name(name: str) -> str:
    return candidates(HF, name)[0]
