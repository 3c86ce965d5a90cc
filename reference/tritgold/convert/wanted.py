"""Wanted: the content that the converted checkpoint must have, determined before any byte is written.

It alone defines what a conversion keeps. The writers write it; then the written file is opened with the ordinary
readers and compared with it.
"""

from dataclasses import dataclass, replace

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ModelConfig, ScaleRule
from tritgold.errors import ConversionError
from tritgold.formats.container import StoredTensor
from tritgold.formats.sglbitnt_file import SglbitntFile
from tritgold.formats.stored_weights import MasterWeight, PackedWeight
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold.ternary import LinearWeight, TernaryTensor


@dataclass(frozen=True, eq=False)
class Wanted:
    """source: the opened checkpoint. config: of the target; only ``scale_rule`` may differ from the source's.

    ignore_keys: keys of the source's config.json that are ignored, also when the result is read.
    """

    source: Checkpoint
    config: ModelConfig
    ignore_keys: tuple[str, ...] = ()

    @property
    def widened(self) -> bool:
        """Whether the source's container stores all floats as float32, so that their dtype means nothing."""
        return isinstance(self.source.container, SglbitntFile)

    def linear(self, name: str) -> TernaryTensor:
        """Trits [out, in] and scale of ``layers.3.q`` as the target applies it; unpacked again at each call."""
        return TernaryTensor(self._weight(name).ternary().trits, self.scales(name))

    def scales(self, name: str) -> np.ndarray:
        """Its scale, as the target applies it: float32 [], or [out, 1] if rows have their own.

        Unpacks the trits only if the stored scales are not one number.
        """
        weight = self._weight(name)
        stored = weight.one_scale() if isinstance(weight, PackedWeight) else None
        if stored is None and (scales := weight.ternary().scale).ndim:
            rules = self.source.config.scale_rule, self.config.scale_rule
            carried = [carried_scale(scale, *rules, name) for scale in scales[:, 0]]
            return np.array(carried, np.float32)[:, None]
        return np.asarray(self._one(name, weight, stored))

    def scale(self, name: str) -> np.float32:
        """The scale, for a target with one per tensor; ConversionError ``several-scales`` if rows have their own."""
        scales = self.scales(name)
        if scales.ndim:
            raise ConversionError(
                "has several scales, one for each block of rows, and the target has room for one",
                kind="several-scales",
                thing=name,
                got=f"{np.unique(scales).size} scales",
                hint="--to iq2_bn, tq2_0, tq1_0 and gguf-f32 keep them",
            )
        return np.float32(scales)

    def _one(self, name: str, weight: LinearWeight, stored: np.float32 | None) -> np.float32:
        stored = np.float32(weight.ternary().scale) if stored is None else stored
        try:
            return carried_scale(stored, self.source.config.scale_rule, self.config.scale_rule, name)
        except ConversionError:
            if weight.ternary().trits.any():
                raise
            return np.float32(1)  # for zeros only, any scale is right

    def matrix(self, name: str) -> StoredTensor:
        """``embedding`` or ``head`` of the source."""
        found = getattr(self.source.weights, name)
        assert isinstance(found, StoredTensor)
        return found

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Shape of every linear weight by its name, in execution order."""
        return {name: weight.shape for name, weight in self.source.weights.linears()}

    def _weight(self, name: str) -> LinearWeight:
        _, layer, linear = name.split(".")
        return self.source.weights.layers[int(layer)].linear(linear)


def wanted(source: Checkpoint, rule: ScaleRule, quantize: bool, ignore_keys: tuple[str, ...] = ()) -> Wanted:
    """The Wanted of a conversion. Raises ConversionError ``not-ternary`` for float masters without ``quantize``."""
    for name, weight in source.weights.linears():
        if isinstance(weight, MasterWeight) and not quantize:
            raise ConversionError(
                f"{weight.stored.dtype} master weights, not trits times one scale",
                kind="not-ternary",
                file=weight.stored.file,
                thing=f"tensor {weight.stored.name!r} ({name})",
                hint="--quantize absmean makes them ternary, as training did; whatever absmean rounds away is lost",
            )
    return Wanted(source, replace(source.config, scale_rule=rule), ignore_keys)


def carried_scale(scale: np.float32, stored: ScaleRule, target: ScaleRule, name: str) -> np.float32:
    """The scale for the target's scale rule: if the rules differ, the reciprocal, such that converting back is exact.

    float32(1 / float32(1 / s)) is not always s. If a bfloat16 number has the stored scale as its reciprocal, that
    number is used: the stored scale was very probably computed from it.

    >>> stored = np.float32(165 / 256)
    >>> multiplying = carried_scale(stored, "divide", "multiply", "q")
    >>> float(multiplying), float(carried_scale(multiplying, "multiply", "divide", "q"))
    (1.5515151023864746, 0.64453125)
    """
    if stored == target:
        return scale
    with np.errstate(divide="ignore", over="ignore"):
        exact = np.float32(1) / scale
        if not np.isfinite(exact):
            raise ConversionError(
                "the scale has no finite reciprocal, and the target applies it the other way",
                kind="scale-reciprocal",
                thing=name,
                got=scale,
                expected=f"a scale that can be changed from {stored} to {target}",
            )
        short = np.float32(bf16_to_f32(f32_to_bf16(np.asarray(exact))))
        return short if np.float32(1) / short == scale else exact
