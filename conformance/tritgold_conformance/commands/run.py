"""tritgold run: generates tokens. The code is in ``running``, so that --help does not import the decoding modules."""

from pathlib import Path
from typing import Any

import click

from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.decoding_names import BACKENDS
from tritgold_conformance.commands.decoding_options import decoding_options


def print_example(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """``--generate-config``: print a configuration and exit; other options are ignored."""
    if asked:
        from tritgold_conformance.commands.server_config import example

        click.echo(example(), nl=False)
        context.exit()


@click.command()
@click.argument("model", required=False)
@model_input.input_options(multiple=True)
@click.option("--max-tokens", type=click.IntRange(1), default=32, show_default=True, help="Most tokens to generate.")
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True, help="The engine.")
@decoding_options
@click.option("--chat", is_flag=True, help="A prompt is a user's message, put into the model's own chat template.")
@click.option("--system", metavar="TEXT", help="With --chat: the system's message before it.")
@click.option("--padding-ids", is_flag=True, help="Let ids come that the tokenizer has no text for.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A block-diffusion server's YAML; options take precedence over it. Only with it, MODEL_PATH of the "
    "environment is the model where neither names one.",
)
@click.option(
    "--generate-config", is_flag=True, is_eager=True, expose_value=False, callback=print_example,
    help="Print such a YAML file with that server's defaults and stop.",
)  # fmt: skip
@model_input.model_options
@printing.json_option
def run(**given: Any) -> None:
    """Generate text, greedily unless --temperature is given.

    MODEL is a checkpoint folder, a GGUF or SGLBITNT file, or an embedded model: kjv-ar (the default), kjv-dlm,
    skills-ar, skills-dlm, seeded.
    A block-diffusion model such as kjv-dlm fills blocks of tokens, the way of Fast-dLLM v2 unless --decode names
    another; any other model gives one token after the other.

    Several prompts are read together, as a batch server does (continuous batching, prefixes kept in a radix cache),
    which changes no token; so is one with --max-sequences, --chunk, --no-radix-cache or a server's --defect.

    Prints the text as it comes (block diffusion: at the end), or the ids where the model has no tokenizer and --ids
    was given. Ends at an end-of-sequence token, at --max-tokens, or when the context is full; the reason goes to
    stderr.

    With --chat each prompt is a user's message: the model's chat template makes the text of it, in a sandbox.

    With --config, options take precedence over the file, the file over the environment (MODEL_PATH), and that over the
    server's defaults, which --generate-config prints.
    """
    from tritgold_conformance.commands.running import run_prompts

    run_prompts(**given)
