"""RequestBatch: all questions to one engine, as data, and the shapes of possible answers. ``questions.asked`` makes it.

A class in this process is asked question by question, a program gets all questions in one run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.graph import Operation, trace_names, traced_arrays
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.contract.answer_shapes import Shape, tokens_of
from tritgold_conformance.contract.clock import RUNS
from tritgold_conformance.contract.session import Session
from tritgold_conformance.faults.witnesses import FileCase


@dataclass(frozen=True, eq=False)
class OperationInput:
    """One operation of the graph with inputs by role. shared: names of those inputs that are in the golden trace."""

    operation: Operation
    inputs: dict[str, np.ndarray]
    shared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Behaviour:
    """One call of a loop or of a text method: a method of BEHAVIOURS and its arguments, which are valid JSON values."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class RequestBatch:
    """The questions to an engine; an empty field is not requested.

    trace, statistics, text: tokens for activations, their statistics, or next tokens. speed: tokens for the timing of
    engines that only their host can time.
    """

    operations: list[OperationInput] = field(default_factory=list)
    trace: list[int] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    files: list[FileCase] = field(default_factory=list)
    statistics: list[int] = field(default_factory=list)
    behaviours: list[Behaviour] = field(default_factory=list)
    speed: list[int] = field(default_factory=list)

    def shapes(self, config: ModelConfig) -> Iterator[tuple[str, Shape | None]]:
        """Names and shapes of all possible answers; None if the program chooses the width."""
        for number, asked in enumerate(self.operations):
            count = tokens_of(asked.operation, asked.inputs)
            for role, array in asked.operation.outputs.items():
                yield f"operation/{number}/{role}", array.shape(config, count)
        if self.trace:
            for name, array in traced_arrays(config).items():
                yield f"trace/{name}", array.shape(config, len(self.trace))
        for session in self.sessions:
            yield f"logits/{session.id}", (len(session.tokens), config.vocab)
        for number, case in enumerate(self.files):
            yield f"files/{number}", case.shape
        if self.statistics:
            for name in trace_names(config):
                yield f"statistics/{name}", (len(MOMENTS),)
                yield from ((f"statistics/{name}/{moment}", ()) for moment in MOMENTS)
        if self.text:
            yield "text/token", (len(self.text),)
            yield "text/ids", None
            yield "text/logprobs", None
        if self.speed:
            yield from (("timed/prefill", None), ("timed/step", None))
        yield from ((f"behaviours/{number}", None) for number in range(len(self.behaviours)))

    def elements(self, config: ModelConfig) -> int:
        """The number of numbers in a complete answer."""
        widest = max(len(self.text), (RUNS + 1) * len(self.speed)) * config.vocab
        return sum(widest if shape is None else prod(shape) for _, shape in self.shapes(config))
