"""tritgold run: generates tokens. The code is in ``running``, so that --help does not import the decoding modules."""

from typing import Any

import click

from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.decoding_options import BACKENDS, decoding_options
from tritgold_conformance.commands.options import FILE, POSITIVE


def print_example(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """``--generate-config``: print a configuration and exit; other options are ignored."""
    if asked:
        from tritgold_conformance.commands.server_config import example

        click.echo(example(), nl=False)
        context.exit()


@click.command()
@click.argument("model", required=False)
@model_input.input_options(multiple=True)
@click.option("--max-tokens", type=POSITIVE, default=32, show_default=True, help="Most tokens to generate.")
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True, help="The engine.")
@decoding_options
@click.option("--chat", is_flag=True, help="Each prompt is a user's message; the model's chat template makes the text.")
@click.option("--system", metavar="TEXT", help="With --chat: the system message.")
@click.option("--padding-ids", is_flag=True, help="Also generate ids for which the tokenizer has no text.")
@click.option(
    "--config", "config_file", type=FILE,
    help="YAML of a block-diffusion server. It also makes the environment variable MODEL_PATH count.",
)  # fmt: skip
@click.option(
    "--generate-config", is_flag=True, is_eager=True, expose_value=False, callback=print_example,
    help="Print such a YAML file with the defaults of that server and stop.",
)  # fmt: skip
@model_input.model_options
@printing.json_option
def run(**given: Any) -> None:
    """Generate text, greedily unless --temperature is given.

    MODEL is a checkpoint folder, a GGUF or SGLBITNT file, or an embedded model: kjv-ar (the default), kjv-dlm,
    kjv-ar-v2 and kjv-dlm-v2 (trained longer), skills-ar, skills-dlm, seeded.
    A block-diffusion model such as kjv-dlm fills blocks of tokens, by Fast-dLLM v2 unless --decode names another
    preset; any other model generates one token after the other.

    Several prompts are decoded together, as in a batch server (continuous batching, common prefixes in a radix cache);
    no token depends on that. --max-sequences, --chunk, --no-radix-cache and --defect of a server do so for one prompt.

    Prints the text while it is generated (block diffusion: at the end), or the ids if the model has no tokenizer and
    --ids was given. Ends at an end-of-sequence token, at --max-tokens, or when the context is full; the reason is
    printed on stderr.

    With --chat the model's chat template makes the text, in a sandbox.

    With --config, the options given here come first, then the file, then the environment variable MODEL_PATH, then the
    defaults of the server, which --generate-config prints.
    """
    from tritgold_conformance.commands.running import run_prompts

    run_prompts(**given)
