"""Small checkpoints of one model in many formats, and `tritgold inspect` run on them."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
from click.testing import CliRunner
from small_models import WIDE, GgufModel, HfModel, as_gguf, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.formats.packings.packing_base import Packing
from tritgold_conformance.cli import main


def inspect(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON."""
    done = CliRunner().invoke(main, ["inspect", *map(str, arguments), "--json"])
    assert done.exit_code in (0, 1, 3, 4), done.output
    return done.exit_code, json.loads(done.stdout)


def shown(width: int, *arguments: object) -> str:
    """The output on a terminal with this many columns."""
    from rich.console import Console

    from tritgold_conformance.rendering.inspection import render_inspection

    console = Console(width=width, file=io.StringIO(), highlight=False)
    render_inspection(inspect(*arguments)[1], console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def hf(folder: Path) -> Path:
    """The model as a Hugging Face folder."""
    return seeded(folder / "parts", WIDE).write(folder / "hf")


def hf_parts(folder: Path) -> HfModel:
    """The same, to be changed before it is written."""
    return seeded(folder / "parts", WIDE)


def gguf(folder: Path, arch: str = "bitnet-b1.58", **how: Any) -> GgufModel:
    """The model as the parts of a GGUF file; I2_S in blocks of 128 from the tests' own builder."""
    return as_gguf(opened(folder), arch, **how)


def opened(folder: Path) -> Checkpoint:
    """The model."""
    return open_checkpoint(hf(folder))


def repacked(model: GgufModel, type_id: int, layout: Packing, change: Callable[[np.ndarray], np.ndarray]) -> GgufModel:
    """The linears of an I2_S model (in blocks of 128) as another type, their trits changed."""
    from tritgold.formats.packings import packing

    for name, tensor in model.tensors.items():
        if tensor.type_id == g.TYPE_I2_S:
            read = packing("i2_s").unpack(tensor.data, tensor.shape)  # type: ignore[arg-type]
            data = layout.pack(np.ascontiguousarray(change(read.trits)), read.scale)
            model.tensors[name] = replace(tensor, type_id=type_id, data=data)
    return model


def of_type(facts: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The only group of tensors of a type."""
    (group,) = [group for group in facts["fingerprint"] if group["dtype"] == dtype]
    return dict(group)


def agreements(group: dict[str, Any]) -> dict[str, float]:
    """Share of trits that agree with the twin, by layout, if it was measured."""
    return {h["layout"]: h["agreement"] for h in group["hypotheses"] if h["agreement"] is not None}


def kinds(facts: dict[str, Any]) -> set[str]:
    """The kinds of all findings about health."""
    return {finding["kind"] for finding in facts["health"]}
