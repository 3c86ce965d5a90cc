"""tritgold judge: the report of an engine that was asked before, by ``tritgold ask``."""

import sys
from pathlib import Path

import click

from tritgold_conformance.commands import common, model_input, printing


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--model", help="The model that it was asked about (kjv-ar by default).")
@click.option("--diagnose/--no-diagnose", "search", default=True, help="Look for the fault of an engine that fails.")
@common.report_option
@model_input.model_options
@printing.json_option
def judge(
    folder: Path,
    model: str | None,
    search: bool,
    report_files: tuple[Path, ...],
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Judge the answers in FOLDER, which tritgold ask wrote: the report is that of tritgold check.

    Exit code 0: it conforms. 1: it does not. 3: it could not be judged. 5: nothing was checked.
    """
    from tritgold_conformance.diagnosis.diagnose import diagnose
    from tritgold_conformance.golden.run import GoldenRun, named_arithmetic
    from tritgold_conformance.judging.judge import judge as judge_evidence
    from tritgold_conformance.questions.evidence_files import read_evidence, require_evidence_of
    from tritgold_conformance.rendering.terminal import render
    from tritgold_conformance.rendering.writers import write_reports
    from tritgold_conformance.results.diagnosis import failing
    from tritgold_conformance.results.report import to_json

    common.require_report_files(report_files)
    with printing.errors(as_json), model_input.model_path(model) as path, printing.progress() as say:
        evidence, options = read_evidence(folder)
        golden = GoldenRun.of(reading.open(path), evidence.tokens, named_arithmetic(evidence.mode.partition("/")[0]))
        require_evidence_of(evidence, golden, folder)
        name = model_input.model_name(model)
        verdict = judge_evidence(golden, evidence, name, options, say)
        if search and verdict.verdict == "does not conform" and not verdict.matches:
            verdict.diagnosis = failing(diagnose(golden, evidence, name, unseen=False, say=say))
    if as_json:
        click.echo(to_json(verdict).decode())
    else:
        render(verdict, printing.console())
    with printing.errors(as_json):
        write_reports(verdict, report_files)
    sys.exit(verdict.exit_code)
