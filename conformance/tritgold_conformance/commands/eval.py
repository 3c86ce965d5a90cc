"""tritgold eval: how often an engine is right. The code is in ``scored``, so that --help does not import it."""

from typing import Any

import click

from tritgold.options import PRESETS, THRESHOLD
from tritgold.skills import LEVELS, TASKS
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.options import POSITIVE, Within
from tritgold_conformance.contract.engine import ENGINE_SPECS


@click.command()
@click.argument("model", required=False)
@click.option("--engine", default="reference", show_default=True, metavar="ENGINE", help=f"{ENGINE_SPECS}.")
@click.option("--task", "tasks", type=click.Choice(list(TASKS)), multiple=True, help="A task; all by default.")
@click.option(
    "--level",
    "levels",
    type=click.Choice(LEVELS),
    multiple=True,
    help="A difficulty; middle by default. May be repeated.",
)
@click.option(
    "--questions", type=POSITIVE, default=20, show_default=True, help="Most questions for each task and level."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32), default=0, show_default=True, help="Seed of the choice of questions."
)
@click.option(
    "--decode",
    type=click.Choice(tuple(PRESETS)),
    help="Decode by block diffusion with this preset; by default one token after the other.",
)
@click.option(
    "--threshold",
    type=Within(0, 1),
    default=THRESHOLD,
    show_default=True,
    help="With --decode: confidence that decides a token.",
)
@click.option("--timeout", type=POSITIVE, metavar="SECONDS", help="Most seconds for a program or an answer.")
@model_input.model_options
@printing.json_option
def eval(**given: Any) -> None:
    """Measure how often an engine is right, by tasks with one right answer.

    MODEL is a checkpoint or the name of an embedded model; skills-ar by default. The questions, such as `37 + 58 =`,
    are those of ``tritgold.skills`` that are never trained on. An answer is right or wrong; every accuracy is shown
    with its 95 % interval.

    Engines that show logits are scored by one prefill over question and answer, which is the same as greedy decoding.
    Servers and engines that only generate write their answers. With --decode, the golden model and the JAX engine
    (--engine reference, xla) fill blocks, and their passes are counted.

    This is weaker than `tritgold check`: an engine whose logits are all wrong may still give every right answer.
    """
    from tritgold_conformance.commands.scored import score_model

    score_model(**given)
