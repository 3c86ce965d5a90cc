"""pytest options and fixtures of the suite. ``--tritgold-engine`` names the engine to judge.

Loaded by pytest wherever the package is installed, so nothing heavy is imported before a fixture is asked for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tritgold_conformance.results.report import Expected, Report
    from tritgold_conformance.suite.engine_judge import EngineJudge

# Position 0 alone sees no RoPE and no mask; two positions see both; 150 do not fit a batch of 128.
INPUT_LENGTHS = (1, 2, 40, 150)
_REPORTS: pytest.StashKey[list["Report"]] = pytest.StashKey()
_PROBLEMS: pytest.StashKey[dict[int, str]] = pytest.StashKey()  # by length, why there is no report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("tritgold", "judging an engine against the golden model")
    group.addoption("--tritgold-engine", default="xla", help="as for tritgold check (default: xla)")
    group.addoption("--tritgold-mode", default=None, help="arithmetic to judge by (default: the engine's own)")
    group.addoption("--tritgold-policy", default=None, help="precision to judge by (default: the engine's own)")
    group.addoption("--tritgold-model", default=None, help="checkpoint to judge on (default: the embedded kjv-ar)")
    group.addoption("--tritgold-xfail", default=None, help="what the engine is known to fail (docs/reports.md)")
    group.addoption("--tritgold-xfail-strict", action="store_true", help="a stale entry of that file is an error")
    group.addoption("--tritgold-timeout", type=int, default=None, help="seconds, as for tritgold check")
    depths = ("quick", "thorough", "one-text")
    group.addoption("--tritgold-depth", default=None, choices=depths, help="as the options of tritgold check")
    group.addoption("--tritgold-linear-class", default=None, help="autobitlinear or bitlinear, as for tritgold check")


def pytest_configure(config: pytest.Config) -> None:
    """Reports are collected for the summary."""
    config.stash[_REPORTS], config.stash[_PROBLEMS] = [], {}


@pytest.fixture(scope="session")
def tritgold_judging(request: pytest.FixtureRequest) -> Iterator["EngineJudge"]:
    """The engine, loaded once, and its judge."""
    from tritgold_conformance.commands.judge_request import JudgeRequest
    from tritgold_conformance.commands.model_input import Reading
    from tritgold_conformance.suite.engine_judge import engine_judge

    option = request.config.getoption
    options = {name: option(f"--tritgold-{name}") for name in ("engine", "model", "mode", "policy", "timeout", "depth")}
    reading = Reading(option("--tritgold-linear-class"))
    with engine_judge(JudgeRequest(**options, tokens=max(INPUT_LENGTHS), reading=reading)) as judge:
        yield judge


@pytest.fixture(scope="session", params=INPUT_LENGTHS, ids=lambda n: f"{n}-tokens")
def tritgold_report(request: pytest.FixtureRequest, tritgold_judging: "EngineJudge") -> "Report":
    """The judgement over an input of each length; speed is not measured in tests.

    Where the engine could not be judged, each test of that length is an error.
    """
    from tritgold.errors import EngineError
    from tritgold_conformance.results.xfail import read_xfail, with_xfail

    file = request.config.getoption("--tritgold-xfail")
    known = read_xfail(Path(file)) if file else []
    try:
        report = tritgold_judging.report(request.param)
    except EngineError as error:
        request.config.stash[_PROBLEMS][request.param] = error.message
        pytest.fail(f"could not be judged: {error.message}", pytrace=False)
    if isinstance(report, str):
        pytest.skip(f"not assessed: {report}")
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
    from tritgold_conformance.results.xfail import stale_in_all

    reports: list[Report] = config.stash[_REPORTS]
    return stale_in_all(reports)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was compared and what was not, whatever the colour of the tests."""
    from tritgold.formats.untrusted_text import printable
    from tritgold_conformance.rendering.escaping import COMMAND
    from tritgold_conformance.results.coverage import coverage_line

    def say(line: str) -> None:
        terminalreporter.write_line(printable(line, COMMAND))

    reports, problems = config.stash[_REPORTS], config.stash[_PROBLEMS]
    if not reports and not problems:
        return
    engine = reports[0].engine.name if reports else config.getoption("--tritgold-engine")
    terminalreporter.section(printable(f"tritgold: {engine}"))
    for report in reports:
        compared = sum(level.compared for level in report.levels.values())
        failed = sum(level.failed for level in report.levels.values())
        absent = [name for name, level in report.levels.items() if level.status == "not assessed"]
        not_assessed = f"{len(report.not_assessed)} outputs, levels: {', '.join(absent) or 'none'}"
        say(
            f"{len(report.tokens)} tokens: {report.verdict}; compared {compared}, failed {failed}, "
            f"not assessed {not_assessed}"
        )
        if report.coverage is not None:
            say(f"  covered: {coverage_line(report.coverage)}")
        if report.exit_code:
            say(f"  reproduce: {report.reproduce}")
    for count, problem in problems.items():
        say(f"{count} tokens: could not be judged: {problem}")
    for entry in _stale(config):
        say(f"stale xfail entry, line {entry.line}: {entry.pattern} {entry.state}")
