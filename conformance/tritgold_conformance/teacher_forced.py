"""Teacher-forced judgement: each operation gets the golden input, so that an error cannot cascade.

This is the verdict that counts: the integer tier with zero tolerance, the float tier within derived bounds, and
each operation judged on its own, so the first failing one in execution order is where the bug is.
"""

from collections.abc import Iterator

from tritgold.graph import Operation
from tritgold_conformance.compare import Comparison, compare
from tritgold_conformance.engine import Candidate
from tritgold_conformance.golden import GoldenRun
from tritgold_conformance.tolerance import tolerances


def judge_operations(golden: GoldenRun, engine: Candidate) -> Iterator[Comparison | str]:
    """Run every operation of the graph on the engine with golden inputs.

    Yields a Comparison for each output, in execution order, or the name of an output that the engine does not
    give: not assessed. Outputs of a wrong kind, shape or missing altogether fail.
    """
    config, weights = golden.checkpoint.config, golden.checkpoint.weights
    for operation, inputs in golden.operations():
        outputs = engine.operation(operation.name, inputs)
        allowed = tolerances(operation, inputs, config, weights)
        for role, name in operation.writes.items():
            if outputs is None or (role not in outputs and _partial(operation, outputs)):
                yield name
            else:
                yield compare(name, golden.trace[name], outputs.get(role), allowed[role])


def _partial(operation: Operation, outputs: dict[str, object]) -> bool:
    """Whether an engine gave some of an operation's outputs: one that fuses scale into acc has no acc to show."""
    return any(outputs.get(role) is not None for role in operation.writes)
