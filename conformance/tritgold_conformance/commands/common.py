"""Shared by the commands that judge: report options, reports, and the report of an engine that cannot be judged."""

import functools
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tritgold.errors import OutputError, TritgoldError
from tritgold_conformance.commands import printing
from tritgold_conformance.commands.judge_request import JudgeRequest
from tritgold_conformance.commands.leaving import interrupted_by_signals
from tritgold_conformance.commands.model_input import Reading
from tritgold_conformance.commands.options import ANY_PATH, F
from tritgold_conformance.diagnosis.diagnose import diagnose
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.rendering import terminal
from tritgold_conformance.rendering.escaping import clean, command_text
from tritgold_conformance.rendering.writers import remove_old, require_formats, write_reports
from tritgold_conformance.results.diagnosis import failing
from tritgold_conformance.results.report import Problem, Report, not_judged, to_json

report_option = click.option(
    "--report",
    "report_files",
    multiple=True,
    type=ANY_PATH,
    metavar="FILE",
    help="Write the report: .html, .md, .xml (JUnit), .json or .svg (a badge). May be repeated.",
)
diagnose_option = click.option(
    "--diagnose/--no-diagnose",
    "search",
    default=True,
    help="If the engine fails, look for the known fault that explains it.",
)


def require_report_files(paths: tuple[Path, ...]) -> None:
    """Check the paths before anything is computed. Raises click.UsageError if a report cannot be written to one."""
    try:
        require_formats(paths)
    except OutputError as error:
        raise click.UsageError(str(error)) from None


def with_diagnosis(report: Report, golden: GoldenRun, evidence: Evidence, say: Any) -> Report:
    """The report; with a diagnosis if the engine does not conform and no other mode explains that."""
    if report.verdict == "does not conform" and ("." in report.matches or not report.matches):
        report.diagnosis = failing(diagnose(golden, evidence, report.model, unseen=False, say=say))
    return report


def finish(report: Report, files: tuple[Path, ...], as_json: bool) -> int:
    """Print the report, then write its files, so that a full disk does not hide the verdict. Returns the exit code.

    A file that cannot be written is named on stderr; the others are still written.
    """
    if as_json:
        click.echo(to_json(report).decode())
    else:
        terminal.render(report, printing.console())
    code = report.exit_code
    for file in files:
        try:
            write_reports(report, [file])
        except (OutputError, OSError, UnicodeEncodeError) as error:
            printing.say_error(f"OutputError: no report: {error}")
            code = printing.COULD_NOT_JUDGE
    return code


def guarded(function: F) -> F:
    """Run a command with ``judge_options`` and ``model_options``. SIGTERM and SIGHUP act like Ctrl-C.

    Errors give exit code 3, see ``printing.errors``, and are written to the requested reports (``report_files``, if the
    command has this option). A signal also ends the programs that the engine has started.
    """

    @functools.wraps(function)
    def reporting(*args: Any, request: JudgeRequest, reading: Reading, as_json: bool, **given: Any) -> Any:
        request = replace(request, reading=reading)
        failed = functools.partial(write_not_judged, request, given.get("report_files", ()), given.get("xfail"))
        with printing.errors(as_json, failed), interrupted_by_signals():
            return function(*args, request=request, as_json=as_json, **given)

    wrapped: Any = reporting
    return wrapped


def write_not_judged(request: JudgeRequest, files: tuple[Path, ...], xfail: Path | None, error: dict[str, Any]) -> None:
    """Write reports that state why the engine could not be judged; they replace earlier reports.

    error: fields of ``tritgold.error/1``. A file that cannot be written is skipped, because the exit code is 3 and an
    error message is shown anyway.
    """
    what = ": ".join(str(error[key]) for key in ("file", "thing", "message") if error.get(key))
    problem = Problem(kind=str(error["kind"]), message=clean(what))  # without lone surrogates, not valid in JSON
    repeat = command_text(request.command(*(("--xfail", str(xfail)) if xfail else ())))
    named = clean(request.engine), clean(request.model_name)
    report = not_judged(problem, *named, request.mode, request.ids or [], repeat)
    for file in files:
        with suppress(TritgoldError, OSError, UnicodeEncodeError):
            remove_old([file])
            write_reports(report, [file])
