"""The options of ``run`` that say how to decode, each with its help: the fields of ``decoding.Decoding``."""

import click

from tritgold.options import DECODE, KV_SCHEMES
from tritgold_conformance.commands.decoding_names import DEFECTS, RULES, SERVER_DEFECTS
from tritgold_conformance.commands.named import Named, Within
from tritgold_conformance.commands.options import together

decoding_options = together(
    click.option(
        "--decode", type=click.Choice(DECODE), help="ar: a token a pass; the others: ways of block diffusion."
    ),
    click.option("--threshold", type=Within(0, 1), help="Confidence that decides a token: a number from 0 to 1."),
    click.option("--block-size", type=click.IntRange(1), help="Tokens of a block, instead of the model's own number."),
    click.option(
        "--sub-block-size", "--small-block-size", type=click.IntRange(1), help="Tokens of a group within a block."
    ),
    click.option("--mask-token-id", type=click.IntRange(0), help="The mask, for a model that does not say."),
    click.option("--max-passes", type=click.IntRange(1), help="Of a block; then the surest predictions fill it."),
    click.option(
        "--defect",
        type=click.Choice(DEFECTS + SERVER_DEFECTS),
        multiple=True,
        help="Decode wrongly, as a known engine does. May be repeated.",
    ),
    click.option(
        "--kv-cache",
        type=Named(),
        help=f"How keys and values are kept: {', '.join(KV_SCHEMES)}; with options: kivi2:window=64. Else f32, exact.",
    ),
    click.option(
        "--sparsity",
        type=Named(),
        multiple=True,
        help=f"A rule that leaves something out: {', '.join(RULES)}; with options: top_k:keep=0.7. May be repeated.",
    ),
    click.option("--temperature", type=Within(0), default=0.0, show_default=True, help="0: the likeliest token."),
    click.option(
        "--top-k",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        show_default=True,
        help="Draw from the k likeliest; 0: from all.",
    ),
    click.option(
        "--top-p", type=Within(0, 1), default=1.0, show_default=True, help="Draw from the likeliest that make up p."
    ),
    click.option(
        "--repetition-penalty",
        type=Within(0, min_open=True),
        default=1.0,
        show_default=True,
        help="For tokens that have occurred; 1: none.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        default=0,
        show_default=True,
        help="Of the draws; the same tokens on every machine.",
    ),
    click.option("--max-sequences", type=click.IntRange(1), help="Of several prompts, read in one pass; else 16."),
    click.option("--chunk", type=click.IntRange(1), help="Tokens of a prompt that one such pass reads; else 128."),
    click.option(
        "--radix-cache/--no-radix-cache",
        default=None,
        help="Whether such prompts that begin alike are read once; else yes.",
    ),
)
