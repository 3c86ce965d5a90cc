"""Convert a checkpoint to SGLBITNT: I2_S rows with the scale in the tensor's header, other tensors widened to float32.

The container cannot hold texts: tokenizer and chat template are written beside the file, ``<file>.<name>``.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.architectures import architecture_of
from tritgold.convert.config_json import config_json
from tritgold.convert.floats import matrix_dtype, planned, planned_matrix
from tritgold.convert.plan import Plan
from tritgold.convert.wanted import Wanted
from tritgold.errors import ConversionError, PackingError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.names import HF, written_name
from tritgold.formats.packings import packing
from tritgold.formats.sglbitnt_file import write_sglbitnt
from tritgold.weights import LINEARS, VECTORS

LOADED = ("bitnet", "llama")  # what the format's own loader knows


@dataclass
class SglbitntPlan(Plan):
    """config: the file's configuration, Hugging Face keys. headers: scales by tensor name."""

    config: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, np.float32] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write one file."""
        write_sglbitnt(path, self.config, self.tensors, self.headers)


def plan_sglbitnt(wanted: Wanted, texts: dict[str, str]) -> SglbitntPlan:
    """texts: of the source. Raises PackingError for rows that are not whole blocks of 128, ConversionError for a model
    of an architecture that the format's own loader does not have.
    """
    entry = architecture_of(wanted.config)
    if entry.name not in LOADED or wanted.config.rope_scaling is not None:
        got = entry.name if entry.name not in LOADED else "a scaling of RoPE"
        raise ConversionError(
            "SGLBITNT's loader would leave out what this model has",
            kind="architecture",
            got=got,
            expected=" or ".join(LOADED),
            hint="--to hf or --to tq2_0 keeps it",
        )
    plan = SglbitntPlan(
        config=json.loads(config_json(wanted, texts, matrix_dtype(wanted.matrix("embedding"), None, widened=False)))
    )
    plan.tensors = list(_tensors(wanted, plan))
    return plan


def _tensors(wanted: Wanted, plan: SglbitntPlan) -> Iterator[PlannedTensor]:
    weights, shapes = wanted.source.weights, wanted.shapes()
    for name in ("embedding", "head") if weights.head is not None else ("embedding",):
        yield planned_matrix(written_name(HF, name), wanted.matrix(name), "F32")
    for index, layer in enumerate(weights.layers):
        for norm in VECTORS:
            if (gain := getattr(layer, norm)) is not None:
                yield planned(written_name(HF, f"layers.{index}.{norm}"), gain, "F32")
        for linear in LINEARS:
            name = f"layers.{index}.{linear}"
            yield _linear(wanted, plan, name, shapes[name])
    yield planned(written_name(HF, "final_norm"), weights.final_norm, "F32")


def _linear(wanted: Wanted, plan: SglbitntPlan, name: str, shape: tuple[int, int]) -> PlannedTensor:
    layout, stored_as = packing("sglbitnt"), written_name(HF, name)
    try:
        size = layout.packed_size(shape)
    except PackingError as error:
        raise error.located(thing=f"{name} ({stored_as})") from None
    plan.linear_bytes += size
    scale = wanted.scale(name)
    plan.headers[stored_as] = plan.scales[name] = scale
    rows, columns = shape
    return PlannedTensor(stored_as, "U8", (rows, columns // 4), size, lambda: (layout.pack(wanted.linear(name).trits),))
