"""Teacher-forced judgement: each operation gets the golden input, so that an error cannot cascade.

This is the verdict that counts: the integer tier with zero tolerance, the float tier within derived bounds, and
each operation judged on its own, so the first failing one in execution order is where the bug is.
"""

from collections.abc import Iterator

import numpy as np

from tritgold.errors import EngineError
from tritgold.graph import Operation
from tritgold_conformance.comparing.compare import Comparison, Tolerance, compare, refused
from tritgold_conformance.comparing.tolerance import tolerances
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.golden.run import GoldenRun


def judge_operations(golden: GoldenRun, engine: EngineUnderTest, only: str = "") -> Iterator[Comparison | str]:
    """Run every operation of the graph on the engine with golden inputs.

    only: the name of one operation, or of one of its outputs; the others are passed over. Yields a Comparison for
    each output, in execution order, or the name of an output that the engine does not give: not assessed. An
    exception of the engine's is a failure of that operation; the others are still judged.
    """
    config, weights = golden.checkpoint.config, golden.checkpoint.weights
    for operation, inputs in golden.operations():
        if only in ("", operation.name, *operation.writes.values()):
            expected = {role: golden.trace[name] for role, name in operation.writes.items()}
            allowed = tolerances(operation, inputs, config, weights)
            yield from judge_operation(engine, operation, inputs, expected, allowed)


def judge_operation(
    engine: EngineUnderTest,
    operation: Operation,
    inputs: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    allowed: dict[str, Tolerance],
    label: str = "",
) -> Iterator[Comparison | str]:
    """Run one operation. label: what stands behind the outputs' names, for inputs that are not the golden ones."""
    raised = ""
    outputs: dict[str, np.ndarray] | None = {}
    try:
        outputs = engine.operation(operation.name, inputs)
    except EngineError as error:
        if error.kind != "engine-failed":  # a program that hangs is no failing operation: nothing can be judged
            raise
        raised = error.message
    for role, name in operation.writes.items():
        shown = name + label
        if raised:
            yield refused(shown, expected[role], raised)
        elif outputs is None:
            yield shown
        elif role in outputs:
            yield compare(shown, expected[role], outputs[role], allowed[role])
        elif outputs.keys() & operation.writes.keys():
            yield shown  # part of the outputs: an engine that fuses the scale into the product has no acc to show
        else:
            given = ", ".join(map(repr, outputs)) or "nothing"
            roles = " and ".join(map(repr, operation.writes))
            yield refused(shown, expected[role], f"the engine returned {given}, expected {roles}")
