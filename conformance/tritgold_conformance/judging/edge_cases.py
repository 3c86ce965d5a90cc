"""Level edge_cases: operations of layer 0 on exact ties, zeros, tiny tokens and extreme sums (``edge_inputs``)."""

from collections.abc import Iterator, Sequence

import numpy as np

from tritgold.graph import Operation
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.comparing.compare import Comparison, Exact, Tolerance
from tritgold_conformance.comparing.tolerance import tolerances
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.teacher_forced import judge_operation
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.evidence import OperationAnswer


def judge_edge_cases(golden: GoldenRun, answers: Sequence[OperationAnswer]) -> Iterator[Comparison | str]:
    """Yields Comparisons, and names of outputs that are not assessed, like ``judge_operations``."""
    arithmetic = golden.policy.golden(GOLDEN_ARITHMETIC)
    reference = ReferenceEngine(golden.checkpoint, capacity=1, arithmetic=arithmetic)
    for (operation, label, inputs), given in zip(edge_inputs(golden), answers, strict=True):
        expected = reference.operation(operation.name, inputs)
        allowed = edge_tolerances(golden, operation, inputs)
        yield from judge_operation(given, operation, expected, allowed, f" [{label}]")


def edge_tolerances(golden: GoldenRun, operation: Operation, inputs: dict[str, np.ndarray]) -> dict[str, Tolerance]:
    """Output role -> tolerance; codes must be equal, because x * s is exact."""
    allowed = tolerances(operation, inputs, golden.checkpoint.config, golden.checkpoint.weights, golden.policy)
    if operation.kind == "quantize":
        allowed["codes"] = Exact("x * s is exact here: half to even, -128 to 127, floor of 1e-5")
    return allowed
