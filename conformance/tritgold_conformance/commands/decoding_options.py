"""The options of ``run`` that say how to decode, each with its help: the fields of ``decoding.Decoding``."""

import click

from tritgold.options import DECODE, KV_SCHEMES
from tritgold_conformance.commands.decoding_names import DEFECTS, RULES, SERVER_DEFECTS
from tritgold_conformance.commands.named import Named, Within
from tritgold_conformance.commands.options import devices_option, together

decoding_options = together(
    click.option(
        "--decode", type=click.Choice(DECODE), help="ar: one token per pass; the others are modes of block diffusion."
    ),
    click.option("--threshold", type=Within(0, 1), help="Confidence that decides a token, from 0 to 1."),
    click.option("--block-size", type=click.IntRange(1), help="Tokens in a block; by default the model's own number."),
    click.option(
        "--sub-block-size", "--small-block-size", type=click.IntRange(1), help="Tokens in a group within a block."
    ),
    click.option("--mask-token-id", type=click.IntRange(0), help="Id of the mask, for a model that does not give it."),
    click.option(
        "--max-passes", type=click.IntRange(1), help="Most passes over a block; then the surest predictions fill it."
    ),
    click.option(
        "--defect",
        type=click.Choice(DEFECTS + SERVER_DEFECTS),
        multiple=True,
        help="Decode wrongly, as a known engine does. May be repeated.",
    ),
    click.option(
        "--kv-cache",
        type=Named(),
        help=f"Scheme of keys and values: {', '.join(KV_SCHEMES)}; with options: kivi2:window=64. Default: f32, exact.",
    ),
    click.option(
        "--sparsity",
        type=Named(),
        multiple=True,
        help=f"A rule of sparsity: {', '.join(RULES)}; with options: top_k:keep=0.7. May be repeated.",
    ),
    click.option("--temperature", type=Within(0), default=0.0, show_default=True, help="0 takes the likeliest token."),
    click.option(
        "--top-k",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        show_default=True,
        help="Draw from the k likeliest tokens; 0: from all.",
    ),
    click.option(
        "--top-p",
        type=Within(0, 1),
        default=1.0,
        show_default=True,
        help="Draw from the likeliest tokens that sum to p.",
    ),
    click.option(
        "--repetition-penalty",
        type=Within(0, min_open=True),
        default=1.0,
        show_default=True,
        help="Penalty of tokens that have occurred; 1: none.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        default=0,
        show_default=True,
        help="Seed of the draws; the same text on every machine.",
    ),
    click.option("--max-sequences", type=click.IntRange(1), help="Prompts read in one pass; 16 by default."),
    click.option(
        "--chunk", type=click.IntRange(1), help="Tokens of a prompt that one such pass reads; 128 by default."
    ),
    click.option(
        "--radix-cache/--no-radix-cache",
        default=None,
        help="Read what several prompts begin with once; on by default.",
    ),
    devices_option,
)
