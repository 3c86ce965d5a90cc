"""What the commands that judge share: reports and their options, and the report of what cannot be judged."""

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
from tritgold_conformance.commands.options import F
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
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report: .html, .md, .xml (JUnit), .json or .svg (a badge). May be repeated.",
)
diagnose_option = click.option(
    "--diagnose/--no-diagnose", "search", default=True, help="Look for the fault of an engine that fails."
)


def require_report_files(paths: tuple[Path, ...]) -> None:
    """Before anything is computed. Raises click.UsageError for what no report can be written to."""
    try:
        require_formats(paths)
    except OutputError as error:
        raise click.UsageError(str(error)) from None


def with_diagnosis(report: Report, golden: GoldenRun, evidence: Evidence, say: Any) -> Report:
    """The report, with the fault of an engine that does not conform where another mode does not explain it."""
    if report.verdict == "does not conform" and ("." in report.matches or not report.matches):
        report.diagnosis = failing(diagnose(golden, evidence, report.model, unseen=False, say=say))
    return report


def finish(report: Report, files: tuple[Path, ...], as_json: bool) -> int:
    """Print the report, then write its files: a disk that is full takes no verdict away. Returns the exit code.

    A file that cannot be written is named on stderr, and the others are written.
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
    """Run a command with ``judge_options`` and ``model_options``. Signals end it as Ctrl-C does, its programs too.

    What cannot be judged is exit code 3, see ``printing.errors``, and the reports that were asked for say so
    (``report_files``, where the command has these).
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
    """Write reports that say why the engine could not be judged, in place of any earlier report.

    error: fields of ``tritgold.error/1``. A file that cannot be written is left out: the exit code says so, and there
    is an error to be shown already.
    """
    what = ": ".join(str(error[key]) for key in ("file", "thing", "message") if error.get(key))
    problem = Problem(kind=str(error["kind"]), message=clean(what))  # no half of a character, which is not JSON
    repeat = command_text(request.command(*(("--xfail", str(xfail)) if xfail else ())))
    named = clean(request.engine), clean(request.model_name)
    report = not_judged(problem, *named, request.mode, request.ids or [], repeat)
    for file in files:
        with suppress(TritgoldError, OSError, UnicodeEncodeError):
            remove_old([file])
            write_reports(report, [file])
