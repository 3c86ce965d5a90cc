"""pytest options and fixtures of the suite. ``--tritgold-engine`` names the engine to judge.

Loaded by pytest wherever the package is installed, so nothing heavy is imported before a fixture is asked for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tritgold.checkpoint import Checkpoint
    from tritgold_conformance.engine import Candidate
    from tritgold_conformance.report import Expected, Report

# Position 0 alone sees no RoPE and no mask; two positions see both; 150 do not fit a batch of 128.
INPUT_LENGTHS = (1, 2, 40, 150)
_REPORTS: pytest.StashKey[list["Report"]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("tritgold", "judging an engine against the golden model")
    group.addoption("--tritgold-engine", default="xla", help="as for tritgold check (default: xla)")
    group.addoption("--tritgold-mode", default=None, help="arithmetic to judge by (default: the engine's own)")
    group.addoption("--tritgold-model", default=None, help="checkpoint to judge on (default: the embedded kjv-ar)")
    group.addoption("--tritgold-xfail", default=None, help="what the engine is known to fail (docs/reports.md)")
    group.addoption("--tritgold-xfail-strict", action="store_true", help="a stale entry of that file is an error")
    group.addoption("--tritgold-linear-class", default=None, help="autobitlinear or bitlinear, as for tritgold check")


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
def tritgold_checkpoint(request: pytest.FixtureRequest, tritgold_model: Path) -> "Checkpoint":
    """The same, opened."""
    from tritgold.checkpoint import open_checkpoint

    return open_checkpoint(tritgold_model, request.config.getoption("--tritgold-linear-class"))


@pytest.fixture(scope="session")
def tritgold_engine(
    request: pytest.FixtureRequest, tritgold_model: Path, tritgold_checkpoint: "Checkpoint"
) -> "Candidate":
    """The engine, opened once."""
    from tritgold_conformance.engine import load_engine

    spec = request.config.getoption("--tritgold-engine")
    return load_engine(spec, tritgold_model, tritgold_checkpoint, max(INPUT_LENGTHS))


@pytest.fixture(scope="session", params=INPUT_LENGTHS, ids=lambda n: f"{n}-tokens")
def tritgold_report(
    request: pytest.FixtureRequest, tritgold_checkpoint: "Checkpoint", tritgold_engine: "Candidate"
) -> "Report":
    """The judgement over an input of each length; speed is not measured in tests."""
    from tritgold_conformance.commands.common import model_name
    from tritgold_conformance.golden import GoldenRun, judging_tokens, named_arithmetic
    from tritgold_conformance.judge import judge
    from tritgold_conformance.reports.xfail import read_xfail, with_xfail

    file = request.config.getoption("--tritgold-xfail")
    known = read_xfail(Path(file)) if file else []
    config = tritgold_checkpoint.config
    if request.param > config.context:
        pytest.skip(f"not assessed: the model has {config.context} positions")
    tokens = judging_tokens(request.param, config.vocab, seed=1)
    name = model_name(request.config.getoption("--tritgold-model"))
    mode = request.config.getoption("--tritgold-mode")
    golden = GoldenRun.of(tritgold_checkpoint, tokens, named_arithmetic(mode or tritgold_engine.mode))
    options = ("--mode", mode) if mode else ()
    report = judge(golden, tritgold_engine, name, with_speed=False, options=options)
    if file:
        report = with_xfail(report, known, file, request.config.getoption("--tritgold-xfail-strict"))
    request.config.stash[_REPORTS].append(report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A strict xfail file with a stale entry fails a run that would have passed."""
    strict = session.config.getoption("--tritgold-xfail-strict")
    if strict and session.exitstatus == pytest.ExitCode.OK and _stale(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _stale(config: pytest.Config) -> list["Expected"]:
    """Entries of the xfail file that are stale over all the inputs that were judged."""
    from tritgold_conformance.reports.xfail import stale_in_all

    reports: list[Report] = config.stash[_REPORTS]
    return stale_in_all(reports)


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
    for entry in _stale(config):
        terminalreporter.write_line(f"stale xfail entry, line {entry.line}: {entry.pattern} {entry.state}")
