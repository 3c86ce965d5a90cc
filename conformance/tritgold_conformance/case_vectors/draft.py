"""Draft: a case before it is written, with its arrays; Group: cases that share a folder. And random numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.counter_random import random_bits, uniform
from tritgold_conformance.case_vectors.case import Level
from tritgold_conformance.comparing.compare import Exact, Tolerance

# Row lengths for formats that allow any: they do not fit any tile, or are near multiples of tile sizes.
COLUMNS = (1, 3, 15, 17, 31, 33, 127, 129, 160, 255, 257)
EXACT = Exact("one right answer: any right engine gives these bits")


@dataclass(frozen=True, eq=False)
class Draft:
    """A case without its answer, which ``answers.answer`` computes.

    allowed: role -> tolerance, for roles that are not EXACT. optional: roles that may be left out. refused: the kind
    of failure that is expected instead of outputs. file: name and bytes of a file to be opened. array_prefix: prefix
    of its outputs' names, if another protocol defines them. The other fields are as in ``case.Case``.
    """

    name: str
    kind: str
    why: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    seed: int | None = None
    allowed: Mapping[str, Tolerance] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    refused: str | None = None
    file: tuple[str, bytes] | None = None
    array_prefix: str | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """Cases in one folder. model: for operations and tokens; requests: a RequestBatch of the command protocol.

    files: additional files by name. carried: whether the model is in the folder; a large one is written by a command.
    """

    name: str
    level: Level
    about: str
    drafts: list[Draft]
    model: Checkpoint | None = None
    requests: Any = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    carried: bool = True


def index(shape: tuple[int, ...]) -> np.ndarray:
    """uint64 counters 1, 2, ... in an array of this shape."""
    return np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64).reshape(shape)


def trits(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """int8: -1, 0, +1 with equal probabilities."""
    return ((random_bits(seed, index(shape)) >> np.uint64(40)) % np.uint64(3)).astype(np.int8) - np.int8(1)


def codes(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """int8, uniform from -127 to 127."""
    drawn = (random_bits(seed, index(shape)) >> np.uint64(40)) % np.uint64(255)
    return (drawn.astype(np.int16) - 127).astype(np.int8)


def floats(seed: int, shape: tuple[int, ...], size: float = 1.0) -> np.ndarray:
    """float32, uniform between -size and size."""
    return ((2 * uniform(seed, index(shape)) - 1) * size).astype(np.float32)


def around(seed: int, shape: tuple[int, ...], centre: float = 1.0) -> np.ndarray:
    """float32, uniform from 0.9 to 1.3 times the centre: for gains and scales, which should not be 1."""
    return (centre * (0.9 + 0.4 * uniform(seed, index(shape)))).astype(np.float32)


def scale_of(number: int) -> np.float32:
    """A weight scale for each number, float32 with all 24 bits, between 0.3 and 3, never 1."""
    return np.float32(0.3 + 2.7 * float(uniform(31, np.array([number + 1], np.uint64))[0]))
