"""Asked: everything that one run of a program is asked at once, and the shapes of what it may answer.

A Python engine is called a hundred times; a program is started once, so the judge's questions are written down before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tritgold.config import ModelConfig
from tritgold.graph import Operation, operations
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.contract.answer_shapes import Shape, output_shapes, tokens_of
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.packed_bytes import cases
from tritgold_conformance.questions.sessions import cuts


@dataclass(frozen=True, eq=False)
class AskedOperation:
    """One operation of the graph on given inputs. shared: names of inputs in the golden trace, which repeat."""

    operation: Operation
    inputs: dict[str, np.ndarray]
    shared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """Tokens read from position 0 on, in chunks of the given lengths; logits at each of them."""

    id: str
    tokens: list[int]
    chunks: list[int]

    def begins_with(self, chunks: list[list[int]]) -> bool:
        """Whether these chunks of tokens are its first ones."""
        read = [token for chunk in chunks for token in chunk]
        return self.chunks[: len(chunks)] == [len(c) for c in chunks] and self.tokens[: len(read)] == read


@dataclass(frozen=True, eq=False)
class Asked:
    """What one run is asked; empty: not asked.

    trace, statistics, text: tokens to show the activations, their statistics, or the next tokens, of.
    """

    operations: list[AskedOperation] = field(default_factory=list)
    trace: list[int] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    files: list[FileCase] = field(default_factory=list)
    statistics: list[int] = field(default_factory=list)

    @classmethod
    def by_judge(cls, golden: GoldenRun) -> "Asked":
        """All that ``judge`` will ask about this run."""
        if golden.arithmetic == Q8_K_ARITHMETIC:  # of which the judge has no bounds for operations and traces
            return cls(sessions=_sessions(golden.tokens), text=golden.tokens, files=cases())
        asked = [AskedOperation(o, inputs, dict(o.reads)) for o, inputs in golden.operations()]
        asked += [AskedOperation(o, inputs) for o, _, inputs in edge_inputs(golden)]
        tokens = golden.tokens
        return cls(asked, tokens, _sessions(tokens), text=tokens, files=cases(), statistics=tokens)

    def shapes(self, config: ModelConfig) -> Iterator[tuple[str, Shape | None]]:
        """Names and shapes of all that may be answered; None for what the program itself decides the width of."""
        for number, asked in enumerate(self.operations):
            count = tokens_of(asked.operation, asked.inputs)
            for role, shape in output_shapes(asked.operation, config, count).items():
                yield f"operation/{number}/{role}", shape
        if self.trace:
            for operation in operations(config):
                for role, shape in output_shapes(operation, config, len(self.trace)).items():
                    yield f"trace/{operation.writes[role]}", shape
        for session in self.sessions:
            yield f"logits/{session.id}", (len(session.tokens), config.vocab)
        for number, case in enumerate(self.files):
            yield f"files/{number}", case.shape
        if self.statistics:
            for operation in operations(config):
                yield from ((f"statistics/{name}", (len(MOMENTS),)) for name in operation.writes.values())
        if self.text:
            yield "text/token", (len(self.text),)
            yield "text/ids", None
            yield "text/logprobs", None

    def elements(self, config: ModelConfig) -> int:
        """How many numbers a complete answer has."""
        widest = len(self.text) * config.vocab
        return sum(widest if shape is None else prod(shape) for _, shape in self.shapes(config))


def _sessions(tokens: list[int]) -> list[Session]:
    count = len(tokens)
    cut, end = cuts(count)
    pieces = [cut, end - cut, *[1] * (count - end)] if cut else []  # too short to be cut
    chunks = {"prefill": [count], "continued": pieces, "steps": [1] * count}
    return [Session(name, tokens, lengths) for name, lengths in chunks.items() if lengths]
