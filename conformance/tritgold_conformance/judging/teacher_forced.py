"""Level operations: each operation gets the golden input, so that an error cannot cascade.

This is the most reliable verdict: integers with zero tolerance, floats within derived bounds, and each operation judged
alone, so that the first failing one in execution order is where the bug is.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tritgold.graph import Operation
from tritgold_conformance.comparing.compare import Comparison, Tolerance, compare, refused
from tritgold_conformance.comparing.tolerance import tolerances
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.evidence import OperationAnswer, Raised


def named(golden: GoldenRun, only: str = "") -> Iterator[tuple[Operation, dict[str, np.ndarray]]]:
    """Operations with their golden inputs. only: the name of one operation or of one of its outputs; empty: all."""
    for operation, inputs in golden.operations():
        if only in ("", operation.name, *operation.writes.values()):
            yield operation, inputs


def judge_operations(
    golden: GoldenRun, answers: Sequence[OperationAnswer], only: str = ""
) -> Iterator[Comparison | str]:
    """Judge the answers to ``named(golden, only)``.

    Yields a Comparison for each output, in execution order, or the name of an output that the engine does not give,
    which is not assessed. If the engine raised in an operation, this operation fails; the others are still judged.
    """
    config, weights, policy = golden.checkpoint.config, golden.checkpoint.weights, golden.policy
    for (operation, inputs), given in zip(named(golden, only), answers, strict=True):
        expected = {role: golden.trace[name] for role, name in operation.writes.items()}
        if not policy.quantised and operation.kind in ("quantize", "bit_linear"):
            yield from operation.writes.values()  # there are no codes
            continue
        yield from judge_operation(given, operation, expected, tolerances(operation, inputs, config, weights, policy))


def judge_operation(
    given: OperationAnswer,
    operation: Operation,
    expected: dict[str, np.ndarray],
    allowed: dict[str, Tolerance],
    label: str = "",
) -> Iterator[Comparison | str]:
    """Judge the answer of one operation. label: added to the outputs' names for inputs other than the golden ones."""
    for role, name in operation.writes.items():
        shown = name + label
        if isinstance(given, Raised):
            yield refused(shown, expected[role], given.message)
        elif given is None:
            yield shown
        elif role in given:
            yield compare(shown, expected[role], given[role], allowed[role])
        elif given.keys() & operation.writes.keys():
            yield shown  # part of the outputs: an engine that fuses the scale into the product has no acc to show
        else:
            got = ", ".join(map(repr, given)) or "nothing"
            roles = " and ".join(map(repr, operation.writes))
            yield refused(shown, expected[role], f"the engine returned {got}, expected {roles}")
