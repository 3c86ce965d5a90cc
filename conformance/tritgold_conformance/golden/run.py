"""GoldenRun: the reference's answer to one input, computed once and compared with many times."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold.graph import Operation, operations
from tritgold.layers.arithmetic import ARITHMETICS, GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.golden.float_environment import require_default_floats


@dataclass(frozen=True, eq=False)
class GoldenRun:
    """A checkpoint, tokens, and the trace of the golden model over them.

    arithmetic: another than the golden one makes another reference; with a deliberate fault, for example.
    """

    checkpoint: Checkpoint
    tokens: list[int]
    trace: Trace
    arithmetic: Arithmetic = GOLDEN_ARITHMETIC

    @classmethod
    def of(cls, checkpoint: Checkpoint, tokens: list[int], arithmetic: Arithmetic = GOLDEN_ARITHMETIC) -> "GoldenRun":
        """Run the forward pass over the tokens. Raises EngineError where this process does not round as it must."""
        require_default_floats()
        trace = Trace(model_hash=checkpoint.model_hash())
        forward(tokens, checkpoint.weights, checkpoint.config, trace=trace, arithmetic=arithmetic)
        require_default_floats()
        return cls(checkpoint, tokens, trace, arithmetic)

    @property
    def logits(self) -> np.ndarray:
        """float32 [tokens, vocab]."""
        return self.trace["logits"]

    def operations(self) -> Iterator[tuple[Operation, dict[str, np.ndarray]]]:
        """Every operation in execution order, with its golden inputs by role."""
        arrays = {**self.trace.arrays, "tokens": np.asarray(self.tokens, np.int64)}
        for operation in operations(self.checkpoint.config):
            yield operation, {role: arrays[name] for role, name in operation.reads.items()}


def named_arithmetic(name: str) -> Arithmetic:
    """One of ARITHMETICS. Raises EngineError where an engine names none of them."""
    found = {mode.name: arithmetic for mode, arithmetic in ARITHMETICS.items()}
    if name not in found:
        raise EngineError("unknown arithmetic", kind="engine-mode", got=repr(name), expected=", ".join(found))
    return found[name]


def judging_tokens(count: int, vocab: int, seed: int) -> list[int]:
    """``count`` token ids spread over the vocabulary, the same for the same seed: a linear congruential sequence."""
    state, tokens = seed * 2654435761 % 2**31, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        tokens.append((state >> 8) % vocab)
    return tokens
