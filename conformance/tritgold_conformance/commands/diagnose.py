"""tritgold diagnose: which known fault an engine has, or where it begins to be wrong."""

import sys

import click

from tritgold_conformance.commands import common, model_input, printing
from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT, ENGINE_SPECS, MODES


@click.command()
@click.option("--engine", "spec", default="xla", show_default=True, metavar="ENGINE", help=f"{ENGINE_SPECS}.")
@click.option(
    "--timeout", type=click.IntRange(1, 604_800), help=f"Seconds for a run of a program: {DEFAULT_TIMEOUT:g}."
)
@click.option("--mode", type=click.Choice(MODES), help="The arithmetic to judge by; if not said, the engine's own.")
@click.option("--model", help="A checkpoint folder, GGUF file or embedded model (kjv-ar by default).")
@click.option("--tokens", "count", default=40, show_default=True, help="Length of the input.")
@click.option("--seed", default=1, show_default=True, help="Which input.")
@click.option("--ids", type=model_input.Ids(), help="The input itself, instead of --tokens and --seed.")
@click.option(
    "--level",
    type=click.Choice(["operations", "trace", "statistics", "logits"]),
    help="Use nothing surer than this, whatever the engine gives.",
)
@click.option(
    "--unseen/--no-unseen", default=True, help="Say which faults this run could not have shown; a pass for each fault."
)
@model_input.model_options
@printing.json_option
@common.guarded
def diagnose(
    spec: str,
    timeout: int | None,
    mode: str | None,
    model: str | None,
    count: int,
    seed: int,
    ids: list[int] | None,
    level: str | None,
    unseen: bool,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Name the fault of an engine.

    The golden model is run with every known fault, and what is nearest to the engine's output is named with its
    distance; or none is, and the first divergence stands alone. Several faults are found one after the other.

    Exit code 0: there is nothing to explain. 1: there is, or tritgold check says so. 3: it could not be judged.
    5: nothing was checked.
    """
    from tritgold_conformance.diagnosis.diagnose import diagnose as search
    from tritgold_conformance.engines.ask import ask
    from tritgold_conformance.engines.load import load_engine
    from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
    from tritgold_conformance.judging.judge import judge
    from tritgold_conformance.results.diagnosis import failing, to_json

    with model_input.model_path(model) as path, printing.progress() as say:
        checkpoint = reading.open(path)
        tokens = ids if ids is not None else judging_tokens(count, checkpoint.config.vocab, seed)
        engine = load_engine(spec, path, checkpoint, len(tokens), timeout or DEFAULT_TIMEOUT, say)
        say("golden model")
        golden = GoldenRun.of(checkpoint, tokens, named_arithmetic(mode or engine.mode))
        name = model_input.model_name(model)
        evidence = ask(engine, golden, say)
        found = search(golden, evidence, name, level, unseen=unseen, say=say)
        if found.clean and judge(golden, evidence, name, on_progress=say).verdict == "does not conform":
            found = failing(found)
    if as_json:
        click.echo(to_json(found).decode())
    else:
        from tritgold_conformance.rendering.diagnosis import render

        render(found, printing.console())
    sys.exit(found.exit_code)
