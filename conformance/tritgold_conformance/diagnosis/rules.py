"""The rules of a replay: how near a candidate must come at each output, and what its scan says."""

from dataclasses import dataclass, field

import numpy as np

from tritgold.layers.arithmetic import Array
from tritgold.trace_names import token_axis
from tritgold_conformance.comparing.compare import Comparison, Tolerance, incomparable, refused
from tritgold_conformance.comparing.tolerance import tolerances
from tritgold_conformance.diagnosis.distance import distance
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.edge_cases import edge_tolerances
from tritgold_conformance.questions.edge_inputs import edge_inputs

# How near a candidate must come, as a distance. Float32 noise inside one operation stays below the first; a code near
# a tie that falls the other way moves a token's codes by 2e-3, and what is made of hidden codes by more.
MATCH, CODES_MATCH, HIDDEN_MATCH = 1e-5, 1e-3, 1e-2
ROUNDINGS = 2e-6  # of each element, where every one is held to its own size
CLOSER = 0.1  # and it must be so much nearer than what it is to explain
Label = tuple[str, str]  # source, trace name with its edge case's label
# Source -> trace name -> tolerance: what golden inputs allow is the same for every engine.
Allowed = dict[str, dict[str, Tolerance]]


@dataclass(frozen=True)
class Rule:
    """How an output is judged. tolerance: None where an input of the operation is hidden, and ties with it."""

    tolerance: Tolerance | None
    match: float


@dataclass
class Scan:
    """What one mutant's replay says: distances, and the outputs that fail, in execution order."""

    distances: dict[Label, float] = field(default_factory=dict)
    failing: list[Label] = field(default_factory=list)


@dataclass(frozen=True)
class Near:
    """A candidate at the first divergence. moves: its output there is not the golden one."""

    fault: Fault
    mutant: Mutant
    distance: float
    moves: bool
    explains: bool


@dataclass(frozen=True)
class Match:
    """A candidate that explains what is looked at: its distance, and how many outputs still fail with it."""

    fault: Fault
    mutant: Mutant
    distance: float
    scan: Scan


def rounded(value: Array, theirs: Array) -> bool:
    """Whether floats are equal, each within some roundings of itself."""
    if value.shape != theirs.shape or value.dtype.kind != "f":
        return False
    ours = value.astype(np.float64)
    return bool((np.abs(theirs - ours) <= ROUNDINGS * np.abs(ours)).all())  # NaN is near nothing


def axis_of(label: Label) -> int:
    """The axis of tokens."""
    return token_axis(label[1])


def hidden_comparison(name: str, golden: Array, engine: Array) -> Comparison:
    """Where codes upstream are hidden, a broken tie may lie between: only what is farther off than that fails."""
    problem = incomparable(golden, engine)
    if problem:
        return refused(name, golden, problem)
    found = distance(golden, engine, token_axis(name))
    off = np.abs(np.asarray(engine, np.float64) - golden)
    worst = np.unravel_index(int(np.argmax(off)), off.shape)
    return Comparison(
        name,
        "within" if found <= HIDDEN_MATCH else "fails",
        compared=int(golden.size),
        differing=int(np.count_nonzero(off)),
        max_abs=float(off.max()),
        worst=[int(i) for i in worst],
        golden=float(golden[worst]),
        engine=float(np.asarray(engine)[worst]),
        what="" if found <= HIDDEN_MATCH else f"off by {found:.2g} of a token, root mean square",
        why="inputs of the operation are not shown, and ties may have broken among them",
    )


def tolerances_of(golden: GoldenRun, source: str) -> dict[str, Tolerance]:
    """Tolerances of every output on golden inputs, or on edge cases, by trace name with its edge case's label."""
    found: dict[str, Tolerance] = {}
    if source == "operations":
        for operation, inputs in golden.operations():
            given = tolerances(operation, inputs, golden.checkpoint.config, golden.checkpoint.weights, golden.policy)
            found |= {name: given[role] for role, name in operation.writes.items()}
    else:
        for operation, label, inputs in edge_inputs(golden):
            given = edge_tolerances(golden, operation, inputs)
            found |= {f"{name} [{label}]": given[role] for role, name in operation.writes.items()}
    return found
