"""Evidence: all answers of one engine about one golden run, as data. ``engines.ask`` collects it once."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritgold_conformance.comparing.next_tokens import Completion as Completion
from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.contract.engine import BEHAVIOURS as BEHAVIOURS
from tritgold_conformance.questions.ladder import ONE_TEXT

PATHS = ("logits", "continued", "steps")
UNANSWERED = "next_tokens "  # and a position: in Evidence.refused


@dataclass(frozen=True)
class Raised:
    """Instead of an answer: the message of the error that the engine raised."""

    message: str


Outputs = dict[str, np.ndarray]
OperationAnswer = Outputs | Raised | None  # by role
Unpacked = np.ndarray | Raised | None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Answers in the order of the questions; None or empty if the engine gave none.

    name, spec, versions: of the engine. machine, reference: versions of the asking machine and of the reference. mode:
    the arithmetic with which it is compared, ``name/version``. model_hash, tokens: of the golden run. methods: that
    the engine has. packed: of ``packed_bytes.cases``. operations, edges: outputs by role, for the golden inputs and
    for ``edge_inputs``. trace: trace name -> array. statistics: trace name -> moment -> number. logits: one of PATHS,
    or a session of the ladder or of accuracy, -> float [tokens, vocab], shape (0, 0) if rows have different widths.
    refused: session, or UNANSWERED and a position, -> error message, empty if the engine gave no rows. depth, seed: of
    the ladder; ONE_TEXT without one. next_tokens: (token, {id: log-probability}) after each prefix. answers: label of a
    question of a behaviour or of accuracy -> ids, texts, or REFUSED. timed: logits of the timed calls, by call. speed,
    reference_speed: None if not measured.
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
