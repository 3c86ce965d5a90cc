"""tritgold report: prints a saved report, or writes it in another format."""

from pathlib import Path

import click

from tritgold_conformance.commands import common, printing
from tritgold_conformance.commands.options import ANY_PATH, FILE
from tritgold_conformance.rendering.terminal import render
from tritgold_conformance.rendering.writers import write_reports
from tritgold_conformance.results.report import read_report


@click.command()
@click.argument("saved", metavar="REPORT.json", type=FILE)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=ANY_PATH)
@printing.json_option
def report(saved: Path, files: tuple[Path, ...], as_json: bool) -> None:
    """Print a saved report, or write it in other formats.

    REPORT.json was written by `tritgold check --json` or `--report FILE.json`. FILE is .html, .md, .xml (JUnit), .json
    or .svg (a badge); without FILE the report is printed.

    Exit code 0: written, whatever the verdict is. 3: REPORT.json is not a report, or FILE cannot be written.
    """
    common.require_report_files(files)
    with printing.errors(as_json):
        read = read_report(saved)
        write_reports(read, files)
    if as_json:
        written = [str(path) for path in files]
        printing.print_json({"schema": "tritgold.reports/1", "verdict": read.verdict, "written": written})
    elif not files:
        render(read, printing.console())
