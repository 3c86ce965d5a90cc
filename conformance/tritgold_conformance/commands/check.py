"""tritgold check: judge an engine against the golden model."""

import sys
from dataclasses import asdict, replace
from pathlib import Path

import click

from tritgold.errors import EngineError
from tritgold_conformance.commands import common, printing
from tritgold_conformance.commands.judge_request import JudgeRequest, judge_options
from tritgold_conformance.commands.model_input import model_options
from tritgold_conformance.commands.options import FILE
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.contract.engine import MODES
from tritgold_conformance.golden.run import named_mode
from tritgold_conformance.judging import check as judging
from tritgold_conformance.rendering.terminal import render_comparisons
from tritgold_conformance.rendering.writers import remove_old
from tritgold_conformance.results.report import json_schema
from tritgold_conformance.results.xfail import read_xfail, with_xfail


@click.command()
@judge_options
@click.option("--only", default="", metavar="NAME", help="Judge only one operation, for example layers.0.ffn_act.")
@click.option("--speed/--no-speed", default=True, help="Measure tokens/s if the engine passes.")
@common.diagnose_option
@common.report_option
@click.option(
    "--xfail", type=FILE, help="Known failures of this engine (docs/reports.md); these cases neither fail nor pass."
)
@click.option("--xfail-strict", is_flag=True, help="Exit code 1 if an entry of that file does not fail any more.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of the report and stop.")
@model_options
@printing.json_option
@common.guarded
def check(
    request: JudgeRequest,
    only: str,
    speed: bool,
    search: bool,
    report_files: tuple[Path, ...],
    xfail: Path | None,
    xfail_strict: bool,
    schema: bool,
    as_json: bool,
) -> None:
    """Judge an engine against the golden model.

    Compares operations on golden inputs, activations, and logits at every position; then measures tokens/s.

    Exit code 0: it conforms, or fails only where its xfail file says so. 1: it does not; the first divergence in
    execution order is named. 3: it could not be judged. 5: nothing was checked.
    """
    if schema:
        printing.print_json(json_schema())
        return
    if only and (report_files or xfail):
        raise click.UsageError("--report and --xfail need a whole judgement, without --only")
    if xfail_strict and not xfail:
        raise click.UsageError("--xfail-strict needs --xfail FILE")
    common.require_report_files(report_files)
    if xfail and any(path.exists() and path.samefile(xfail) for path in report_files):
        raise click.UsageError("--report would replace the file of --xfail")
    remove_old(report_files)
    known = read_xfail(xfail) if xfail else None
    with request.opened() as opened:
        engine, say = opened.engine, opened.say
        if only and opened.mode != MODES[0]:
            raise click.UsageError(
                f"--only NAME works only with --mode {MODES[0]}: other modes have no bounds for single operations"
            )
        golden = opened.golden_run()
        if only:
            sys.exit(_show_alone(judging.check_operation(golden, engine, only), only, as_json))
        report, evidence = judging.check(
            golden, engine, request.model_name, speed, request.options(), say, opened.ladder, opened.as_declared
        )
        report.in_process = engine.in_process
        if known is not None:
            report = with_xfail(report, known, str(xfail), xfail_strict)
        if search:
            if evidence.mode != golden.mode:  # the engine declared another precision
                golden = replace(opened, policy=named_mode(evidence.mode)[1]).golden_run()
            report = common.with_diagnosis(report, golden, evidence, say)
    sys.exit(common.finish(report, report_files, as_json))


def _show_alone(outcomes: list[Comparison | str], only: str, as_json: bool) -> int:
    """Print the comparisons of one operation; returns the exit code."""
    if not outcomes:
        hint = "tritgold trace ... --json lists the outputs of all operations"
        raise EngineError("no such operation in this model", kind="operation-name", thing=only, hint=hint)
    compared = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    code = 5 if not compared else 0 if all(c.passed for c in compared) else 1
    if as_json:
        shown = [asdict(c) for c in compared]
        printing.print_json({"schema": "tritgold.operation/1", "operation": only, "exit_code": code, "outputs": shown})
    else:
        render_comparisons(outcomes, printing.console())
    return code
