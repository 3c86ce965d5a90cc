"""tritgold check: judge an engine against the golden model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritgold_conformance.commands import common, model_input, printing
from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT, ENGINE_SPECS, MODES

if TYPE_CHECKING:
    from tritgold_conformance.comparing.compare import Comparison
    from tritgold_conformance.results.report import Report


@click.command()
@click.option("--engine", "spec", default="xla", show_default=True, metavar="ENGINE", help=f"{ENGINE_SPECS}.")
@click.option(
    "--timeout", type=click.IntRange(1, 604_800), help=f"Seconds for a run of a program: {DEFAULT_TIMEOUT:g}."
)
@click.option("--mode", type=click.Choice(MODES), help="The arithmetic to judge by; if not said, the engine's own.")
@click.option("--model", help="A checkpoint folder, GGUF file or embedded model (kjv-ar by default).")
@click.option("--tokens", "count", default=40, show_default=True, help="Length of the input.")
@common.depth_options
@click.option("--ids", type=model_input.Ids(), help="The input itself, instead of --tokens and --seed.")
@click.option("--only", default="", metavar="NAME", help="One operation alone, layers.0.ffn_act for example.")
@click.option("--speed/--no-speed", default=True, help="Measure tokens/s of an engine that passes.")
@click.option("--diagnose/--no-diagnose", "ask", default=True, help="Look for the fault of an engine that fails.")
@common.report_option
@click.option(
    "--xfail",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What this engine is known to fail (docs/reports.md): no failure, and never a pass.",
)
@click.option("--xfail-strict", is_flag=True, help="A stale entry of that file makes the exit code 1.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of the report and stop.")
@model_input.model_options
@printing.json_option
@common.guarded
def check(
    spec: str,
    timeout: int | None,
    mode: str | None,
    model: str | None,
    count: int,
    seed: int,
    depth: str | None,
    ids: list[int] | None,
    only: str,
    speed: bool,
    ask: bool,
    report_files: tuple[Path, ...],
    xfail: Path | None,
    xfail_strict: bool,
    schema: bool,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Judge an engine against the golden model.

    Operations on golden inputs, activations, logits at every position, tokens/s.

    Exit code 0: it conforms, or fails as its xfail file says and nowhere else. 1: it does not; the first divergence in
    execution order is named. 3: it could not be judged. 5: nothing was checked.
    """
    from tritgold_conformance.results import report

    if schema:
        printing.print_json(report.json_schema())
        return
    from tritgold_conformance.engines.load import load_engine
    from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
    from tritgold_conformance.judging import check as judging
    from tritgold_conformance.questions.ladder import ladder_of
    from tritgold_conformance.rendering import writers
    from tritgold_conformance.results.xfail import read_xfail, with_xfail

    if only and (report_files or xfail):
        raise click.UsageError("--report and --xfail are of a whole judgement, not of --only one operation")
    if xfail_strict and not xfail:
        raise click.UsageError("--xfail-strict is about the file of --xfail")
    common.require_report_files(report_files)
    if xfail and any(path.exists() and path.samefile(xfail) for path in report_files):
        raise click.UsageError("--report would replace the file of --xfail")
    limit = () if timeout is None else ("--timeout", str(timeout))
    options = (*reading.words(), *limit, *(("--mode", mode) if mode else ()), *common.depth_words(depth, seed))
    writers.remove_old(report_files)
    with model_input.model_path(model) as path, printing.progress() as say:
        known = read_xfail(xfail) if xfail else None
        checkpoint = reading.open(path)
        tokens = ids if ids is not None else judging_tokens(count, checkpoint.config.vocab, seed)
        ladder = ladder_of(checkpoint.config, tokens, depth or "default", seed)
        longest = len(tokens) if ladder is None else ladder.longest
        engine = load_engine(spec, path, checkpoint, longest, timeout or DEFAULT_TIMEOUT, say)
        if only and (mode or engine.mode) != MODES[0]:
            raise click.UsageError(f"--only NAME has bounds for --mode {MODES[0]} alone")
        say("golden model")
        golden = GoldenRun.of(checkpoint, tokens, named_arithmetic(mode or engine.mode))
        if only:
            sys.exit(_show_alone(judging.check_operation(golden, engine, only), only, as_json))
        name = model_input.model_name(model)
        verdict, evidence = judging.check(golden, engine, name, speed, options, say, ladder)
        if known is not None:
            verdict = with_xfail(verdict, known, str(xfail), xfail_strict)
        if ask and verdict.verdict == "does not conform" and not verdict.matches:
            from tritgold_conformance.diagnosis.diagnose import diagnose
            from tritgold_conformance.results.diagnosis import failing

            verdict.diagnosis = failing(diagnose(golden, evidence, name, unseen=False, say=say))
    # Printed first: a disk that is full takes no verdict away.
    if as_json:
        click.echo(report.to_json(verdict).decode())
    else:
        from tritgold_conformance.rendering.terminal import render

        render(verdict, printing.console())
    sys.exit(verdict.exit_code if _written(verdict, report_files) else printing.COULD_NOT_JUDGE)


def _written(verdict: "Report", files: tuple[Path, ...]) -> bool:
    """Whether every report could be written; what could not is said on stderr, and the others are written."""
    from tritgold.errors import OutputError
    from tritgold_conformance.rendering.writers import write_reports

    done = True
    for file in files:
        try:
            write_reports(verdict, [file])
        except (OutputError, OSError, UnicodeEncodeError) as error:
            printing.say_error(f"OutputError: no report: {error}")
            done = False
    return done


def _show_alone(outcomes: "list[Comparison | str]", only: str, as_json: bool) -> int:
    """Print the comparisons of one operation; returns the exit code."""
    from dataclasses import asdict

    from tritgold.errors import EngineError
    from tritgold_conformance.rendering.terminal import render_comparisons

    if not outcomes:
        hint = "tritgold trace ... --json lists the outputs of all operations"
        raise EngineError("no such operation in this model", kind="operation-name", thing=only, hint=hint)
    compared = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    code = 5 if not compared else 0 if all(c.passed for c in compared) else 1
    if as_json:
        shown: list[Any] = [asdict(c) for c in compared]
        printing.print_json({"schema": "tritgold.operation/1", "operation": only, "exit_code": code, "outputs": shown})
    else:
        render_comparisons(outcomes, printing.console())
    return code
