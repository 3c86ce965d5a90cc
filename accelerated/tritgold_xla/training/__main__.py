"""``python -m tritgold_xla.training TEXT FOLDER``: train the golden models, or continue an interrupted training."""

from pathlib import Path

import click
from tokenizers import Tokenizer

from tritgold_xla.training import evaluate, export, facts, running
from tritgold_xla.training.corpus import Corpus, read_corpus
from tritgold_xla.training.recipe import RECIPES
from tritgold_xla.training.tokens import passage_rows, streams, train_tokenizer

BY_DEFAULT = (
    *("kjv-ar", "kjv-ar-float", "kjv-ar-longer", "kjv-ar-longest", "kjv-ar-v2"),
    *("kjv-dlm", "kjv-dlm-longer", "kjv-dlm-v2"),
)
NAMES = [name for name, recipe in RECIPES.items() if recipe.data == "kjv"]


@click.command()
@click.argument("text", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    help="Runs to make; by default the embedded models, what they start from, and the float twin.",
)
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
    with running.exit_codes(folder):
        _train(text, folder, only or BY_DEFAULT)


def _train(text: Path, folder: Path, names: tuple[str, ...]) -> None:
    corpus = read_corpus(text)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder / "tokenizer.json", corpus)
    train, held_out = streams(tokenizer, corpus)
    five_gram = evaluate.ngram_bits_per_byte(train, held_out, tokenizer.get_vocab_size())
    facts.record(folder, "corpus", facts.corpus_facts(train, held_out, five_gram))
    click.echo(f"{len(train.ids)} tokens to learn, {len(held_out.ids)} held out; 5-gram {five_gram:.3f} bits a byte")
    for name in names:
        recipe = RECIPES[name]
        rows = passage_rows(tokenizer, corpus) if recipe.passages else None
        run = running.finish(name, folder, train.ids, evaluate.held_out_bits(recipe, held_out), rows)
        if run.recipe.ternary:
            export.export(run, tokenizer, folder / name)
        click.echo(f"{name}: {run.held_out[-1][1]:.3f} held-out bits a byte after {run.step} steps")


def _tokenizer(path: Path, corpus: Corpus) -> Tokenizer:
    """The folder's tokenizer, trained only once: another version of the library may train a different one."""
    if not path.exists():
        train_tokenizer(corpus.train, RECIPES[BY_DEFAULT[0]].vocab).save(str(path), pretty=False)
    return Tokenizer.from_file(str(path))


if __name__ == "__main__":
    main(prog_name="python -m tritgold_xla.training")
