"""What the commands of training share: a run taken to its end with a bar, and how a command ends."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tritgold.errors import ConfigError, TritgoldError
from tritgold_xla.training import facts, loop, run_state
from tritgold_xla.training.masters import of_model
from tritgold_xla.training.qat import Parameters
from tritgold_xla.training.recipe import RECIPES, Recipe
from tritgold_xla.training.run_state import Run


@contextmanager
def exit_codes(folder: Path) -> Iterator[None]:
    """Errors end the command with 3 and a message, Ctrl-C with 130."""
    try:
        yield
    except TritgoldError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(3)
    except OSError as error:
        click.echo(f"{folder}: {error}", err=True)
        sys.exit(3)
    except KeyboardInterrupt:
        click.echo("interrupted; the steps made are saved, and the same command goes on from here", err=True)
        sys.exit(130)


def finish(
    name: str,
    folder: Path,
    ids: np.ndarray,
    evaluate: Callable[[Parameters], float],
    passages: np.ndarray | None = None,
) -> Run:
    """Train one run to its end, from the state in its file or from the beginning; the others as for ``loop.train``.

    Raises ConfigError where the run that it starts from is not finished; for ``from_file`` as ``masters.of_model``.
    """
    recipe, path = RECIPES[name], folder / f"{name}.safetensors"
    run = run_state.load(recipe, path) if path.exists() else run_state.begin(recipe, _start(recipe, folder))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=recipe.steps, completed=run.step, loss="")

        def show(run: Run) -> None:
            bar.update(task, completed=run.step, loss=f"{run.losses[-1]:.3f} nats a token")

        done = loop.train(run, ids, path, passages=passages, evaluate=evaluate, progress=show)
    if done is not run or not facts.recorded(folder, name):  # keep the facts of the machine that trained it
        facts.record(folder, name, facts.run_facts(done))
    return done


def _start(recipe: Recipe, folder: Path) -> Parameters | None:
    """The masters that a run starts from; None: from its seed."""
    if recipe.start is None:
        return None
    return of_model(recipe, folder / recipe.start) if recipe.from_file else finished(recipe.start, folder).parameters


def finished(name: str, folder: Path) -> Run:
    """The run that another run starts from; ConfigError if it does not exist or is not finished."""
    path = folder / f"{name}.safetensors"
    run = run_state.load(RECIPES[name], path) if path.exists() else None
    if run is None or run.step < run.recipe.steps:
        raise ConfigError(
            "is not finished, and another run starts from it",
            kind="start",
            file=path,
            got="no file" if run is None else f"{run.step} steps",
            expected=f"{RECIPES[name].steps} steps",
            hint=f"train it first: --only {name}",
        )
    return run
