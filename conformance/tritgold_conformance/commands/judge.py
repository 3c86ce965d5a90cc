"""tritgold judge: the report about answers that ``tritgold ask`` has written."""

import sys
from pathlib import Path

import click

from tritgold_conformance.commands import common, model_input, printing
from tritgold_conformance.golden.run import GoldenRun, named_mode
from tritgold_conformance.judging.judge import judge as judge_evidence
from tritgold_conformance.questions.evidence_files import read_evidence, require_evidence_of


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--model", help="The model for which the answers were made (kjv-ar by default).")
@common.diagnose_option
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
    """Judge the answers that tritgold ask wrote to FOLDER; the report is that of tritgold check.

    Exit code 0: it conforms. 1: it does not. 3: it could not be judged. 5: nothing was checked.
    """
    common.require_report_files(report_files)
    with printing.errors(as_json), model_input.model_path(model) as path, printing.progress() as say:
        evidence, options = read_evidence(folder)
        golden = GoldenRun.of(reading.open(path), evidence.tokens, *named_mode(evidence.mode))
        require_evidence_of(evidence, golden, folder)
        report = judge_evidence(golden, evidence, model_input.model_name(model), options, say)
        report.in_process = "--in-process" in options
        if search:
            report = common.with_diagnosis(report, golden, evidence, say)
    sys.exit(common.finish(report, report_files, as_json))
