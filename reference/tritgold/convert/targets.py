"""The targets of a conversion, one row each."""

from dataclasses import dataclass
from typing import Literal

from tritgold.errors import ConversionError


@dataclass(frozen=True)
class Target:
    """container: the kind of file. dtype: the type of its linear weights, by its name in the container.

    file_type: ``general.file_type`` of a GGUF file. Forks number it differently, so readers cannot rely on it.
    """

    name: str
    container: Literal["hf", "gguf", "sglbitnt"]
    dtype: str
    file_type: int = 0


TARGETS = {
    target.name: target
    for target in (
        Target("hf", "hf", "U8"),
        Target("i2_s", "gguf", "I2_S", 40),
        Target("tl1", "gguf", "TL1", 38),
        Target("tl2", "gguf", "TL2", 39),
        Target("tq1_0", "gguf", "TQ1_0", 36),
        Target("tq2_0", "gguf", "TQ2_0", 37),
        Target("iq1_bn", "gguf", "IQ1_BN", 136),
        Target("iq2_bn", "gguf", "IQ2_BN", 137),
        Target("iq2_bn_r4", "gguf", "IQ2_BN_R4", 337),
        Target("sglbitnt", "sglbitnt", "U8"),
        Target("gguf-f16", "gguf", "F16", 1),
        Target("gguf-f32", "gguf", "F32", 0),
    )
}


def target(name: str) -> Target:
    """The target called ``name``. Raises ConversionError with the valid names."""
    if name not in TARGETS:
        raise ConversionError("no such target", kind="unknown-target", got=repr(name), expected=", ".join(TARGETS))
    return TARGETS[name]
