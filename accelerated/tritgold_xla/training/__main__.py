"""``python -m tritgold_xla.training TEXT FOLDER``: train the golden models, or continue an interrupted training."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer

from tritgold.errors import ConfigError, TritgoldError
from tritgold_xla.training import evaluate, export, facts, loop, run_state
from tritgold_xla.training.corpus import Corpus, read_corpus
from tritgold_xla.training.recipe import RECIPES
from tritgold_xla.training.run_state import Run
from tritgold_xla.training.tokens import Stream, streams, train_tokenizer

EMBEDDED = ("kjv-ar", "kjv-ar-float", "kjv-dlm")


@click.command()
@click.argument("text", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--only", multiple=True, type=click.Choice(list(RECIPES)), help="Runs to make; the three by default.")
def main(text: Path, folder: Path, only: tuple[str, ...]) -> None:
    """Train the golden models on TEXT, the King James Bible as Debian's bible-kjv prints it.

    \b
        apt-get download bible-kjv bible-kjv-text
        for file in bible-kjv*.deb; do dpkg-deb -x $file kjv; done
        echo Gen1:1-Rev22:21 | kjv/usr/bin/bible -f -d kjv/usr/lib/bible.data > kjv.txt

    FOLDER receives the tokenizer, the state of each run (NAME.safetensors), each model in Hugging Face layout (NAME/),
    and training.json. Interrupted, the same command goes on from the last finished step; killed, from the last of
    every 50; to the same result.
    """
    try:
        _train(text, folder, only or EMBEDDED)
    except TritgoldError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(3)
    except OSError as error:
        click.echo(f"{folder}: {error}", err=True)
        sys.exit(3)
    except KeyboardInterrupt:
        click.echo("interrupted; the steps made are saved, and the same command goes on from here", err=True)
        sys.exit(130)


def _train(text: Path, folder: Path, names: tuple[str, ...]) -> None:
    corpus = read_corpus(text)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder / "tokenizer.json", corpus)
    train, held_out = streams(tokenizer, corpus)
    five_gram = evaluate.ngram_bits_per_byte(train, held_out, tokenizer.get_vocab_size())
    facts.record(folder, "corpus", facts.corpus_facts(train, held_out, five_gram))
    click.echo(f"{len(train.ids)} tokens to learn, {len(held_out.ids)} held out; 5-gram {five_gram:.3f} bits a byte")
    for name in names:
        run = _run(name, folder, train, held_out)
        if run.recipe.ternary:
            export.export(run, tokenizer, folder / name)
        click.echo(f"{name}: {run.held_out[-1][1]:.3f} held-out bits a byte after {run.step} steps")


def _run(name: str, folder: Path, train: Stream, held_out: Stream) -> Run:
    """Train one run, from the state in its file or from the beginning; returns the finished run."""
    recipe, path = RECIPES[name], folder / f"{name}.safetensors"
    if path.exists():
        run = run_state.load(recipe, path)
    else:
        run = run_state.begin(recipe, None if recipe.start is None else _finished(recipe.start, folder).parameters)
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

        bits = evaluate.held_out_bits(recipe, held_out)
        done = loop.train(run, train.ids, path, evaluate=bits, progress=show)
    if done is not run or not facts.recorded(folder, name):  # keep the facts of the machine that trained it
        facts.record(folder, name, facts.run_facts(done))
    return done


def _tokenizer(path: Path, corpus: Corpus) -> Tokenizer:
    """The folder's tokenizer, trained only once: another version of the library may train a different one."""
    if not path.exists():
        train_tokenizer(corpus.train, RECIPES[EMBEDDED[0]].vocab).save(str(path), pretty=False)
    return Tokenizer.from_file(str(path))


def _finished(name: str, folder: Path) -> Run:
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


if __name__ == "__main__":
    main(prog_name="python -m tritgold_xla.training")
