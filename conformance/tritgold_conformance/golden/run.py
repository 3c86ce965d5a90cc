"""GoldenRun: the reference's outputs for one input, computed once and used for many comparisons."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold.graph import Operation, operations
from tritgold.layers.arithmetic import ARITHMETICS, GOLDEN_ARITHMETIC, Arithmetic, mode_id
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.golden.float_environment import require_default_floats
from tritgold_conformance.policies import FLOAT32, Policy, named_policy

_LOGITS: dict[tuple[str, tuple[int, ...], Arithmetic], np.ndarray] = {}
MOST_KEPT = 1 << 26  # elements of golden logits that a process keeps


@dataclass(frozen=True, eq=False)
class GoldenRun:
    """A checkpoint, tokens, and the trace of the golden model for them.

    arithmetic: may differ from the golden one, for example by a deliberate fault; the run is then a different
    reference. policy: the precision that the engine declares; ``arithmetic`` already has its roundings, ``plain`` has
    not.
    """

    checkpoint: Checkpoint
    tokens: list[int]
    trace: Trace
    arithmetic: Arithmetic = GOLDEN_ARITHMETIC
    policy: Policy = FLOAT32
    plain: Arithmetic = GOLDEN_ARITHMETIC

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        tokens: list[int],
        arithmetic: Arithmetic = GOLDEN_ARITHMETIC,
        policy: Policy = FLOAT32,
    ) -> "GoldenRun":
        """Run the forward pass over the tokens. Raises EngineError where this process does not round as it must."""
        require_default_floats()
        trace, rounded = Trace(model_hash=checkpoint.model_hash()), policy.golden(arithmetic)
        forward(tokens, checkpoint.weights, checkpoint.config, trace=trace, arithmetic=rounded)
        require_default_floats()
        return cls(checkpoint, tokens, trace, rounded, policy, arithmetic)

    def of_text(self, tokens: list[int]) -> "GoldenRun":
        """The same model with another text; the trace has only the logits.

        Logits that this process has already computed for a model with the same content are used again.
        """
        key, c = (self.trace.model_hash, tuple(tokens), self.arithmetic), self.checkpoint
        rows = _LOGITS.get(key)
        if rows is None:
            require_default_floats()
            rows = forward(tokens, c.weights, c.config, arithmetic=self.arithmetic)
            require_default_floats()
            if sum(kept.size for kept in _LOGITS.values()) > MOST_KEPT:
                _LOGITS.clear()
            _LOGITS[key] = rows
        trace = Trace(model_hash=self.trace.model_hash, arrays={"logits": rows})
        return replace(self, tokens=list(tokens), trace=trace)

    def prefix(self, count: int) -> "GoldenRun":
        """The run of the first ``count`` tokens, whose golden logits are the same. The trace has only the logits."""
        if count == len(self.tokens):
            return self
        trace = Trace(model_hash=self.trace.model_hash, arrays={"logits": self.logits[:count]})
        return replace(self, tokens=self.tokens[:count], trace=trace)

    @property
    def mode(self) -> str:
        """The id of the arithmetic, the policy in it: ``golden/1``, ``golden.kv-f16/1``."""
        name, _, version = mode_id(self.plain).partition("/")
        return f"{name}.{self.policy.name}/{version}" if self.policy.parts else f"{name}/{version}"

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
    """The arithmetic in ARITHMETICS with this name. Raises EngineError for an unknown name."""
    found = {mode.name: arithmetic for mode, arithmetic in ARITHMETICS.items()}
    if name not in found:
        raise EngineError("unknown arithmetic", kind="engine-mode", got=repr(name), expected=", ".join(found))
    return found[name]


def named_mode(mode: str) -> tuple[Arithmetic, Policy]:
    """What ``GoldenRun.mode`` named, with or without its version. Raises EngineError for what it cannot have."""
    arithmetic, _, policy = mode.partition("/")[0].partition(".")
    return named_arithmetic(arithmetic), named_policy(policy) if policy else FLOAT32


def judging_tokens(count: int, vocab: int, seed: int) -> list[int]:
    """``count`` token ids spread over the vocabulary, equal for equal seeds: a linear congruential sequence."""
    state, tokens = seed * 2654435761 % 2**31, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        tokens.append((state >> 8) % vocab)
    return tokens
