"""Which tensor is cut along which axis, in one table, and the size of a device's part. Only data and integers.

A group of query heads stays with its key head, and a device has whole groups: the float32 products of attention in XLA
depend on how many query heads are multiplied together, and on nothing else that is cut. All parts have the same size,
because all devices run the same program; the last parts are padded with zeros, which change no integer and no maximum.
"""

from dataclasses import dataclass, replace
from typing import Literal

from tritgold.config import ModelConfig
from tritgold.errors import EngineError

# What is divided among the devices: query heads (in groups), key heads, channels of the FFN, rows of the vocabulary.
Unit = Literal["heads", "kv_heads", "inter", "vocab"]
# Rows of a head that stay together: the number that ``lm_head`` converts at a time if XLA has no bfloat16 product.
ROWS = 4096


@dataclass(frozen=True)
class Cut:
    """How a tensor is divided. unit: what is counted; None: every device has the whole tensor.

    along: ``in`` for a matrix that reads the unit, whose sums are added over the devices; otherwise ``out``.
    """

    unit: Unit | None = None
    along: Literal["out", "in"] = "out"


# Every tensor of ``Parameters``, by its role. A vector of a linear's outputs is cut like the rows of the linear.
CUTS = {
    "q": Cut("heads"),
    "k": Cut("kv_heads"),
    "v": Cut("kv_heads"),
    "o": Cut("heads", "in"),
    "gate": Cut("inter"),
    "up": Cut("inter"),
    "down": Cut("inter", "in"),
    "attn_norm": Cut(),
    "attn_sub_norm": Cut(),
    "ffn_norm": Cut(),
    "ffn_sub_norm": Cut(),
    "attn_post_norm": Cut(),
    "ffn_post_norm": Cut(),
    "q_norm": Cut(),
    "k_norm": Cut(),
    "q_bias": Cut("heads"),
    "k_bias": Cut("kv_heads"),
    "v_bias": Cut("kv_heads"),
    "final_norm": Cut(),
    "embedding": Cut("vocab"),
    "head": Cut("vocab"),
    "sin": Cut(),
    "cos": Cut(),
}
# Axes of traced arrays (``tritgold.graph``) that are cut, because the weights that compute them are.
AXES: dict[str, Unit] = {
    "heads": "heads",
    "q_width": "heads",
    "kv_heads": "kv_heads",
    "kv_width": "kv_heads",
    "inter": "inter",
}


def cut_of(role: str) -> Cut:
    """How the tensor of this role is cut. Raises EngineError ``partition`` for a role that is not in CUTS."""
    if role not in CUTS:
        raise EngineError(
            "has no rule for cutting it over devices",
            kind="partition",
            thing=role,
            expected=f"one of {', '.join(CUTS)}",
            hint="add its row to tritgold_xla.sharding.partition.CUTS, or use one device",
        )
    return CUTS[role]


@dataclass(frozen=True)
class Plan:
    """How a model is cut over so many devices.

    local: the configuration of one device's program, with the heads, kv_heads and inter of its part, padding included.
    rows: of the vocabulary on each device. whole_head, whole_embedding: every device has all rows of this matrix.
    """

    config: ModelConfig
    devices: int
    local: ModelConfig
    rows: int
    whole_head: bool
    whole_embedding: bool

    @classmethod
    def of(cls, config: ModelConfig, devices: int, whole_head: bool = False, rows_together: int = 1) -> "Plan":
        """The plan. rows_together: a device has a multiple of so many rows of the vocabulary, 1 or ROWS."""
        kv_heads, inter = (-(-size // devices) for size in (config.kv_heads, config.inter))
        heads = kv_heads * (config.heads // config.kv_heads)
        each = -(-config.vocab // devices)
        rows = -(-each // rows_together) * rows_together
        local = replace(config, heads=heads, kv_heads=kv_heads, inter=inter)
        return cls(config, devices, local, rows, whole_head, whole_head and config.tied_head)

    def width(self, unit: Unit) -> int:
        """The size of one device's part: channels of its heads or its FFN, or rows of the vocabulary."""
        return {"heads": self.local.q_width, "kv_heads": self.local.kv_width, "inter": self.local.inter,
                "vocab": self.rows}[unit]  # fmt: skip

    def full(self, unit: Unit) -> int:
        """The same size for the whole model."""
        return {"heads": self.config.q_width, "kv_heads": self.config.kv_width, "inter": self.config.inter,
                "vocab": self.config.vocab}[unit]  # fmt: skip

    def part(self, unit: Unit, device: int) -> slice:
        """The part of the whole that one device has; if shorter than ``width``, possibly empty, the rest is padding."""
        width, full = self.width(unit), self.full(unit)
        return slice(min(device * width, full), min((device + 1) * width, full))

    def linear_shape(self, name: str) -> tuple[int, int]:
        """(out, in) of a device's part of the linear weight ``name``, padding included."""
        return self.local.linear_shape(name)
