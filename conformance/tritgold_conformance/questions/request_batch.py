"""RequestBatch: everything that one run of a program is asked at once, and the shapes of what it may answer.

A program is started once for all of them, so the judge's questions are written down before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.graph import Operation, trace_names, traced_arrays
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.contract.answer_shapes import Shape, tokens_of
from tritgold_conformance.contract.engine import usual_calls
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.packed_bytes import cases
from tritgold_conformance.questions.sessions import cuts


@dataclass(frozen=True, eq=False)
class OperationInput:
    """One operation of the graph on given inputs. shared: names of inputs in the golden trace, which repeat."""

    operation: Operation
    inputs: dict[str, np.ndarray]
    shared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """Tokens read from position 0 on, in chunks of the given lengths; logits at each of them.

    calls: ``prefill`` or ``step`` for each chunk; left out: ``usual_calls``.
    """

    id: str
    tokens: list[int]
    chunks: list[int]
    calls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.calls:
            object.__setattr__(self, "calls", usual_calls(self.chunks))

    def begins_with(self, read: Sequence[tuple[str, list[int]]]) -> bool:
        """Whether these calls, each with its tokens, are its first ones."""
        tokens = [token for _, chunk in read for token in chunk]
        calls = [*zip(self.calls, self.chunks, strict=True)][: len(read)]
        return calls == [(call, len(chunk)) for call, chunk in read] and self.tokens[: len(tokens)] == tokens


@dataclass(frozen=True)
class Behaviour:
    """One call of a loop or of text: a method of BEHAVIOURS and its arguments, which JSON can hold."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class RequestBatch:
    """What one run is asked; empty: not asked.

    trace, statistics, text: tokens to show the activations, their statistics, or the next tokens, of. speed: tokens to
    be timed on, of engines that only their host can time.
    """

    operations: list[OperationInput] = field(default_factory=list)
    trace: list[int] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    files: list[FileCase] = field(default_factory=list)
    statistics: list[int] = field(default_factory=list)
    behaviours: list[Behaviour] = field(default_factory=list)
    speed: list[int] = field(default_factory=list)

    def __add__(self, more: "RequestBatch") -> "RequestBatch":
        """Both in one run. Of parts that are of one text alone the first that is asked stays."""
        many = {
            name: getattr(self, name) + getattr(more, name)
            for name in ("operations", "sessions", "files", "behaviours")
        }
        one = {name: getattr(self, name) or getattr(more, name) for name in ("trace", "text", "statistics", "speed")}
        return RequestBatch(**many, **one)

    @classmethod
    def by_judge(cls, golden: GoldenRun, steps: bool = True) -> "RequestBatch":
        """All that ``judge`` will ask about this run. steps: whether the engine may have single steps."""
        if golden.arithmetic == Q8_K_ARITHMETIC:  # of which the judge has no bounds for operations and traces
            return cls(sessions=_sessions(golden.tokens, steps), text=golden.tokens, files=cases())
        asked = [OperationInput(o, inputs, dict(o.reads)) for o, inputs in golden.operations()]
        asked += [OperationInput(o, inputs) for o, _, inputs in edge_inputs(golden)]
        tokens = golden.tokens
        return cls(asked, tokens, _sessions(tokens, steps), text=tokens, files=cases(), statistics=tokens)

    def shapes(self, config: ModelConfig) -> Iterator[tuple[str, Shape | None]]:
        """Names and shapes of all that may be answered; None for what the program itself decides the width of."""
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
        yield from ((f"behaviours/{number}", None) for number in range(len(self.behaviours)))

    def elements(self, config: ModelConfig) -> int:
        """How many numbers a complete answer has."""
        widest = len(self.text) * config.vocab
        return sum(widest if shape is None else prod(shape) for _, shape in self.shapes(config))


def _sessions(tokens: list[int], steps: bool) -> list[Session]:
    """One prefill; a prompt in two pieces and then steps, or one more piece; token by token."""
    count = len(tokens)
    cut, end = cuts(count)
    sessions = [Session("prefill", tokens, [count])]
    if cut:  # else too short to be cut
        rest = [1] * (count - end) if steps else [count - end] * (count > end)
        calls = ("prefill", "prefill", *["step" if steps else "prefill"] * len(rest))
        sessions.append(Session("continued", tokens, [cut, end - cut, *rest], calls))
    return [*sessions, Session("steps", tokens, [1] * count, ("step",) * count)] if steps else sessions
