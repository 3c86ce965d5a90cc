"""tritgold diagnose: names the known fault that an engine has, or the first operation that is wrong."""

import sys

import click

from tritgold_conformance.commands import common, printing
from tritgold_conformance.commands.judge_request import JudgeRequest, judge_options
from tritgold_conformance.commands.model_input import model_options
from tritgold_conformance.diagnosis.diagnose import diagnose as search
from tritgold_conformance.judging.judge import judge
from tritgold_conformance.rendering.diagnosis import render
from tritgold_conformance.results.diagnosis import failing, to_json


@click.command()
@judge_options
@click.option(
    "--level",
    type=click.Choice(["operations", "trace", "statistics", "logits"]),
    help="The strongest evidence to use, even if the engine gives more.",
)
@click.option(
    "--unseen/--no-unseen",
    default=True,
    help="List the faults that this run could not have shown; takes a forward pass for each fault.",
)
@model_options
@printing.json_option
@common.guarded
def diagnose(request: JudgeRequest, level: str | None, unseen: bool, as_json: bool) -> None:
    """Name the fault of an engine.

    The golden model is run with every known fault. The fault whose output is nearest to the engine's is named, with its
    distance. If none is near, only the first divergence is shown. Several faults are found one after the other.

    Exit code 0: there is nothing to explain. 1: there is, or the engine does not conform. 3: it could not be judged.
    5: nothing was checked.
    """
    with request.opened() as opened:
        name, say = request.model_name, opened.say
        golden, evidence = opened.asked()
        found = search(golden, evidence, name, level, unseen=unseen, say=say)
        found.in_process = opened.engine.in_process
        if found.clean and judge(golden, evidence, name, on_progress=say).verdict == "does not conform":
            found = failing(found)
    if as_json:
        click.echo(to_json(found).decode())
    else:
        render(found, printing.console())
    sys.exit(found.exit_code)
