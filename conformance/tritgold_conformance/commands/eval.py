"""tritgold eval: how often an engine is right. The work is in ``scored``, so that --help need not wait for it."""

from typing import Any

import click

from tritgold.options import PRESETS, THRESHOLD
from tritgold.skills import LEVELS, TASKS
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.named import Within
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
    "--questions", type=click.IntRange(1), default=20, show_default=True, help="Most questions of each task and level."
)
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, show_default=True, help="Which of the questions.")
@click.option(
    "--decode",
    type=click.Choice(tuple(PRESETS)),
    help="Block diffusion by this preset; else one token after the other.",
)
@click.option(
    "--threshold", type=Within(0, 1), default=THRESHOLD, show_default=True, help="With --decode: of a decided token."
)
@click.option("--timeout", type=click.IntRange(1), metavar="SECONDS", help="Most seconds of a program or an answer.")
@model_input.model_options
@printing.json_option
def eval(**given: Any) -> None:
    """Score how often an engine is right, by tasks with one right answer.

    MODEL is a checkpoint or the name of an embedded model; skills-ar by default. The questions are those of
    ``tritgold.skills`` that training never sees, such as `37 + 58 =`; an answer is right or wrong, and every share
    stands with its 95 % interval.

    Engines that show logits are scored by one prefill over question and answer, which is greedy decoding token by
    token; servers and engines that only generate write their answers. With --decode, the golden model and the JAX
    engine (--engine reference, xla) fill blocks, and the passes they took are counted.

    This is weaker than `tritgold check`: an engine may be wrong in every logit and answer everything.
    """
    from tritgold_conformance.commands.scored import score_model

    score_model(**given)
