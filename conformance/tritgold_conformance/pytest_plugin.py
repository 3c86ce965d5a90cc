"""pytest options and fixtures of the suite. ``--tritgold-engine`` names the engine to judge.

Loaded by pytest wherever the package is installed, so nothing heavy is imported before a fixture is asked for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tritgold_conformance.engine import Candidate
    from tritgold_conformance.report import Report

INPUT_LENGTHS = (1, 2, 40)  # position 0 alone sees no RoPE and no mask; two positions see both; 40 fill a chunk
_REPORTS: pytest.StashKey[list["Report"]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("tritgold", "judging an engine against the golden model")
    group.addoption("--tritgold-engine", default="xla", help="xla, reference, or module:Class (default: xla)")
    group.addoption("--tritgold-model", default=None, help="checkpoint to judge on (default: the embedded model)")


def pytest_configure(config: pytest.Config) -> None:
    """Reports are collected for the summary."""
    config.stash[_REPORTS] = []


@pytest.fixture(scope="session")
def tritgold_model(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The checkpoint to judge on."""
    from tritgold_conformance.commands.common import model_path

    with model_path(request.config.getoption("--tritgold-model")) as path:
        yield path


@pytest.fixture(scope="session")
def tritgold_engine(request: pytest.FixtureRequest, tritgold_model: Path) -> "Candidate":
    """The engine, opened once."""
    from tritgold_conformance.engine import load_engine

    return load_engine(request.config.getoption("--tritgold-engine"), tritgold_model)


@pytest.fixture(scope="session", params=INPUT_LENGTHS, ids=lambda n: f"{n}-tokens")
def tritgold_report(request: pytest.FixtureRequest, tritgold_model: Path, tritgold_engine: "Candidate") -> "Report":
    """The judgement over an input of each length; speed is not measured in tests."""
    from tritgold_conformance.golden import golden_run, judging_tokens, vocabulary_of
    from tritgold_conformance.judge import judge

    tokens = judging_tokens(request.param, vocabulary_of(tritgold_model), seed=1)
    name = request.config.getoption("--tritgold-model") or "embedded"
    report = judge(golden_run(tritgold_model, tokens), tritgold_engine, name, with_speed=False)
    request.config.stash[_REPORTS].append(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was compared and what was not, whatever the colour of the tests."""
    reports = config.stash[_REPORTS]
    if not reports:
        return
    terminalreporter.section(f"tritgold: {reports[0].engine.name}")
    for report in reports:
        compared = sum(level.compared for level in report.levels.values())
        failed = sum(level.failed for level in report.levels.values())
        absent = [name for name, level in report.levels.items() if level.status == "not assessed"]
        not_assessed = f"{len(report.not_assessed)} outputs, levels: {', '.join(absent) or 'none'}"
        terminalreporter.write_line(
            f"{len(report.tokens)} tokens: {report.verdict}; compared {compared}, failed {failed}, "
            f"not assessed {not_assessed}"
        )
        if report.exit_code:
            terminalreporter.write_line(f"  reproduce: {report.reproduce}")
