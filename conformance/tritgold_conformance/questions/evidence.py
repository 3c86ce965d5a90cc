"""Evidence: everything that one engine answered about one golden run, as data. It is asked once (``engines.ask``)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.questions.ladder import ONE_TEXT

PATHS = ("logits", "continued", "steps")
UNANSWERED = "next_tokens "  # and a position: in Evidence.refused
BEHAVIOURS = ("generate", "serve", "diffuse", "encode", "chat", "stream")


@dataclass(frozen=True)
class Raised:
    """In the place of an answer: what the engine raised when it was asked."""

    message: str


Outputs = dict[str, np.ndarray]
OperationAnswer = Outputs | Raised | None  # by role
Unpacked = np.ndarray | Raised | None
Completion = tuple[int, dict[int, float]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Answers in the order of the questions; None, or empty, where the engine gave none.

    name, spec, versions: of the engine. machine, reference: versions of what asked. mode: the arithmetic that it is
    held to, ``name/version``. model_hash, tokens: of the golden run. methods: that the engine has. packed: of
    ``packed_bytes.cases``. operations, edges: outputs by role, of the golden inputs and of ``edge_inputs``. trace:
    trace name -> array. statistics: trace name -> moment -> number. logits: one of PATHS, or a session of the ladder,
    -> float [tokens, vocab], shape (0, 0) where rows have several widths. refused: session, or UNANSWERED and a
    position, -> what it raised, empty where it gave no rows. depth, seed: of the ladder; ONE_TEXT where there was none.
    next_tokens: (token, {id: log-probability}) after each prefix. answers: label of a behaviour's question -> ids,
    texts, or REFUSED. timed: what the timed calls gave, by call. speed, reference_speed: None where not measured.
    """

    name: str
    spec: str
    mode: str
    model_hash: str
    tokens: list[int]
    methods: list[str]
    depth: str = ONE_TEXT
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    reference: dict[str, str] = field(default_factory=dict)
    packed: list[Unpacked] = field(default_factory=list)
    operations: list[OperationAnswer] = field(default_factory=list)
    edges: list[OperationAnswer] = field(default_factory=list)
    trace: Outputs = field(default_factory=dict)
    statistics: dict[str, dict[str, float]] = field(default_factory=dict)
    logits: dict[str, np.ndarray] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    next_tokens: list[Completion | None] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    timed: dict[str, np.ndarray] = field(default_factory=dict)
    speed: Speed | None = None
    reference_speed: Speed | None = None

    def has(self, method: str) -> bool:
        """Whether the engine has a method."""
        return method in self.methods
