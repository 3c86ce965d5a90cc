"""A checkpoint as an SGLBITNT file: I2_S rows with the scale in the tensor's header, all else widened to float32."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.convert.floats import planned, planned_matrix
from tritgold.convert.wanted import Wanted
from tritgold.errors import PackingError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.hf_config_writer import hf_config
from tritgold.formats.names import HF, candidates
from tritgold.formats.packing import packing
from tritgold.formats.sglbitnt_file import write_sglbitnt
from tritgold.weights import NORMS


@dataclass
class SglbitntPlan:
    """config: what goes into the header, Hugging Face keys. scales: by our names."""

    config: dict[str, Any]
    tensors: list[PlannedTensor]
    headers: dict[str, np.float32]
    scales: dict[str, np.float32] = field(default_factory=dict)
    other_type: dict[str, str] = field(default_factory=dict)
    linear_bytes: int = 0

    def write(self, path: Path) -> None:
        """One file, written whole."""
        write_sglbitnt(path, self.config, self.tensors, self.headers)


def plan_sglbitnt(wanted: Wanted) -> SglbitntPlan:
    """Raises PackingError for rows that are no whole blocks of 128."""
    plan = SglbitntPlan(json.loads(json.dumps(hf_config(wanted.config))), [], {})
    plan.tensors = list(_tensors(wanted, plan))
    return plan


def _tensors(wanted: Wanted, plan: SglbitntPlan) -> Iterator[PlannedTensor]:
    weights, shapes = wanted.source.weights, wanted.shapes()
    yield _matrix(weights.embedding, "embedding")
    for index, layer in enumerate(weights.layers):
        at = f"layers.{index}"
        for norm in NORMS:
            if (gain := getattr(layer, norm)) is not None:
                yield planned(_name(f"{at}.{norm}"), gain, "F32")
        for name in (n for n in shapes if n.startswith(f"{at}.")):
            yield _linear(wanted, plan, name, shapes[name])
    yield planned(_name("final_norm"), weights.final_norm, "F32")
    if weights.head is not None:
        yield _matrix(weights.head, "head")


def _linear(wanted: Wanted, plan: SglbitntPlan, name: str, shape: tuple[int, int]) -> PlannedTensor:
    layout, stored_as = packing("sglbitnt"), _name(name)
    try:
        size = layout.packed_size(shape)
    except PackingError as error:
        raise error.located(thing=f"{name} ({stored_as})") from None

    def chunks() -> Iterator[bytes]:
        yield layout.pack(wanted.linear(name).trits)

    plan.linear_bytes += size
    plan.headers[stored_as] = plan.scales[name] = np.float32(wanted.linear(name).scale)
    return PlannedTensor(stored_as, "U8", (shape[0], shape[1] // 4), size, chunks)


def _matrix(matrix: object, name: str) -> PlannedTensor:
    assert isinstance(matrix, StoredTensor)  # every checkpoint from disk has its matrices there
    return planned_matrix(_name(name), matrix, "F32")


def _name(name: str) -> str:
    return candidates(HF, name)[0]
