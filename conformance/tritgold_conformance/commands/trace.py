"""tritgold trace: writes every activation of one forward pass to a file."""

from pathlib import Path

import click

from tritgold.config import check_tokens
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.decoding_options import BACKENDS
from tritgold_conformance.engines.xla import open_engine


@click.command()
@click.argument("model", required=False)
@model_input.input_options()
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True, help="The engine.")
@model_input.model_options
@printing.json_option
def trace(
    model: str | None,
    prompt: str | None,
    ids: list[int] | None,
    tokenizer: Path | None,
    output: Path,
    backend: str,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Save every activation of one forward pass.

    Runs MODEL once over the input. The trace is a safetensors file; `tritgold compare` compares two of them.
    """
    with printing.errors(as_json), model_input.model_path(model) as path:
        checkpoint = reading.open(path)
        tokens = model_input.token_ids(checkpoint, prompt, ids, tokenizer)
        check_tokens(tokens, checkpoint.config)
        if backend == "reference":
            made = Trace()
            forward(tokens, checkpoint.weights, checkpoint.config, trace=made)
        else:
            with printing.progress() as say:
                made = open_engine(checkpoint, len(tokens), say=say).trace(tokens)
        made.model_hash = checkpoint.model_hash()
        made.save(output)
        if as_json:
            printing.print_json(
                {
                    "schema": "tritgold.trace-summary/1",
                    "file": str(output),
                    "digest": made.digest(),
                    "engine": made.engine,
                    "mode": made.mode,
                    "model_hash": made.model_hash,
                    "tokens": made.tokens,
                    "arrays": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in made.arrays.items()},
                }
            )
            return
        click.echo(f"{output}: {len(made.arrays)} arrays over {len(tokens)} tokens, {made.mode}, {made.digest()}")
