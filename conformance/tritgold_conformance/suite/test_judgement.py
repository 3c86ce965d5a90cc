"""One test a level and a kind of operation, each over inputs of several lengths."""

from collections.abc import Iterable
from typing import get_args

import pytest

from tritgold.config import ModelConfig
from tritgold.graph import Kind, Operation, operations
from tritgold_conformance.compare import Comparison
from tritgold_conformance.report import Report


def outputs(report: Report, kind: str) -> set[str]:
    """Trace names that operations of this kind write in the report's model."""
    config = ModelConfig(**report.config)
    graph: Iterable[Operation] = operations(config)
    return {name for operation in graph if operation.kind == kind for name in operation.writes.values()}


def require(report: Report, level: str) -> None:
    """Skip what the engine does not give: not assessed is not passed, and the summary counts it."""
    if report.levels[level].status == "not assessed":
        pytest.skip(f"not assessed: {report.levels[level].note}")


def describe(comparison: Comparison) -> str:
    """A failure in one line."""
    values = f"engine {comparison.engine}, golden {comparison.golden} at {comparison.worst}"
    return f"{comparison.name}: {comparison.what}; {values}; allowed: {comparison.why}"


@pytest.mark.parametrize("level", ["files", "statistics"])
def test_packed_bytes_and_statistics(tritgold_report: Report, level: str) -> None:
    """Packed bytes are read exactly and damaged ones refused; statistics of the engine's activations are the golden."""
    require(tritgold_report, level)
    assert tritgold_report.levels[level].status == "passed", tritgold_report.levels[level].note


@pytest.mark.parametrize("kind", get_args(Kind))
def test_operation_on_golden_inputs(tritgold_report: Report, kind: str) -> None:
    """Each operation, given golden inputs, gives the golden output: integers exactly, floats within bounds."""
    require(tritgold_report, "operations")
    names = outputs(tritgold_report, kind)  # those on other inputs have a label behind their name
    judged = [c for c in tritgold_report.operations if c.name in names]
    if not judged:
        pytest.skip(f"not assessed: the engine has no operation of kind {kind}")
    failing = [describe(c) for c in judged if not c.passed]
    assert not failing, f"{len(failing)} of {len(judged)} fail; first in execution order:\n{failing[0]}"


def test_trace_agrees(tritgold_report: Report) -> None:
    """The engine's own activations differ from the golden ones by float noise and broken ties alone."""
    require(tritgold_report, "trace")
    assert tritgold_report.levels["trace"].status == "passed", tritgold_report.levels["trace"].note


def test_operations_on_telling_inputs(tritgold_report: Report) -> None:
    """Exact ties, zero tokens, sums beyond int16: what a model's own activations do not show."""
    require(tritgold_report, "vectors")
    failing = [describe(c) for c in tritgold_report.operations if not c.passed and c.name.endswith("]")]
    assert not failing, "\n".join(failing)


@pytest.mark.parametrize("path", ["logits", "continued", "steps"])
def test_logits_agree(tritgold_report: Report, path: str) -> None:
    """Logits at every position: from one prefill, from a prompt in pieces, and token by token."""
    require(tritgold_report, path)
    assert tritgold_report.levels[path].status == "passed", tritgold_report.levels[path].note


def test_text_agrees(tritgold_report: Report) -> None:
    """Behind every prefix the golden token is written, and the log-probabilities shown are the golden ones."""
    require(tritgold_report, "text")
    assert tritgold_report.levels["text"].status == "passed", tritgold_report.levels["text"].note


def test_something_was_checked(tritgold_report: Report) -> None:
    """An engine that gives nothing must not look like one that passed."""
    assert tritgold_report.verdict != "nothing was checked"
    assert any(level.compared for level in tritgold_report.levels.values())
