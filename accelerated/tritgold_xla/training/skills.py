"""``python -m tritgold_xla.training.skills FOLDER``: train the models of the tasks, or continue the training."""

import json
from pathlib import Path

import click
import numpy as np

from tritgold_xla.training import export, questions, running
from tritgold_xla.training.qat import Parameters
from tritgold_xla.training.recipe import RECIPES

# Each starts from the one before.
NEEDED = ("skills-ar-first", "skills-ar-second", "skills-ar", "skills-dlm-first", "skills-dlm-second", "skills-dlm")
NAMES = [name for name, recipe in RECIPES.items() if recipe.data == "skills"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    help="Runs to make; by default skills-ar, skills-dlm and what they start from.",
)
def main(folder: Path, only: tuple[str, ...]) -> None:
    """Train the golden models on questions that are made while they are asked (tritgold.skills): no download.

    FOLDER receives the state of each run (NAME.safetensors), each model in Hugging Face layout (NAME/), and
    training.json. Interrupted, the same command goes on from the last finished step; killed, from the last of every 50.
    """
    with running.exit_codes(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in only or NEEDED:
            _train(name, folder)


def _train(name: str, folder: Path) -> None:
    recipe = RECIPES[name]
    by_task = questions.accuracy(recipe)

    def share(parameters: Parameters) -> float:
        shares = by_task(parameters)
        click.echo(json.dumps({task: round(found, 3) for task, found in shares.items()}), err=True)
        return float(np.mean(list(shares.values())))

    run = running.finish(name, folder, np.zeros(0, np.int32), share)
    if recipe.ternary:
        export.export(run, questions.question_tokenizer(), folder / name)
    click.echo(f"{name}: {run.held_out[-1][1]:.1%} of held-out questions right after {run.step} steps")


if __name__ == "__main__":
    main(prog_name="python -m tritgold_xla.training.skills")
