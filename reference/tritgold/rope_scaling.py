"""RopeScaling: how a model stretches RoPE's frequencies, as numbers. ``formats.rope_keys`` reads it from files."""

import math
from dataclasses import dataclass, field

from tritgold.errors import ConfigError


@dataclass(frozen=True)
class RopeScaling:
    """What every scaling comes down to: a divisor for each frequency, and a factor of all sines and cosines.

    divisors: head_dim / 2 numbers, rounded to float32 by who makes them, as GGUF stores them; dimension i turns by
        position * theta ** (-2 i / head_dim) / divisors[i]. magnitude: float32, multiplies sin and cos of q and of k
        (yarn's attention factor), so that scores are multiplied by its square.
    source: JSON, as ``rope_scaling`` of a config.json says the same; empty where only the divisors are known. It
        changes no arithmetic.
    """

    divisors: tuple[float, ...]
    magnitude: float = 1.0
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "divisors", tuple(self.divisors))  # JSON has lists
        for value in (*self.divisors, self.magnitude):
            if not (0 < value < math.inf):
                expected = "positive finite numbers"
                raise ConfigError(
                    "is not usable", kind="config-value", thing="rope_scaling", got=value, expected=expected
                )
