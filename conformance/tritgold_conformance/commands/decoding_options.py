"""The decoding options of ``run``, each with its help text: the fields of ``decoding.Decoding``."""

import click

from tritgold.options import DECODE, KV_SCHEMES
from tritgold_conformance.commands.options import POSITIVE, Named, Within, devices_option, together

BACKENDS = ("reference", "xla")
# Names of Defect, ServerDefect and the sparsity rules: --help does not import those modules; a test compares.
DEFECTS = (
    "no-commit", "stale-prefix", "overwritten-prompt", "whole-blocks", "past-stop", "short-prompt", "mask-predicted",
    "compact-feed", "lost-block", "shared-refresh",
)  # fmt: skip
SERVER_DEFECTS = ("chunk-tokens", "position-jumps", "repeated-token", "missing-key")
RULES = (
    "none", "threshold", "top_k", "adaptive", "entropy", "q_sparse", "a4_8", "zero_skipping", "attention_top_k",
    "attention_threshold", "attention_window", "attention_dynamic",
)  # fmt: skip

decoding_options = together(
    click.option(
        "--decode", type=click.Choice(DECODE), help="ar: one token per pass; the others are modes of block diffusion."
    ),
    click.option("--threshold", type=Within(0, 1), help="Confidence that decides a token, from 0 to 1."),
    click.option("--block-size", type=POSITIVE, help="Tokens in a block; by default the model's own number."),
    click.option("--sub-block-size", "--small-block-size", type=POSITIVE, help="Tokens in a group within a block."),
    click.option(
        "--mask-token-id", type=click.IntRange(0), help="Id of the mask token, if the model's files do not give it."
    ),
    click.option(
        "--max-passes",
        type=POSITIVE,
        help="Most passes over a block; then the most confident predictions fill it.",
    ),
    click.option(
        "--defect",
        type=click.Choice(DEFECTS + SERVER_DEFECTS),
        multiple=True,
        help="Decode wrongly, like a known engine. May be repeated.",
    ),
    click.option(
        "--kv-cache",
        type=Named(),
        help=f"KV cache: {', '.join(KV_SCHEMES)}; with options: kivi2:window=64. Default: f32, exact.",
    ),
    click.option(
        "--sparsity",
        type=Named(),
        multiple=True,
        help=f"Sparsity rule: {', '.join(RULES)}; with options: top_k:keep=0.7. May be repeated.",
    ),
    click.option(
        "--temperature", type=Within(0), default=0.0, show_default=True, help="0 takes the most likely token."
    ),
    click.option(
        "--top-k",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        show_default=True,
        help="Draw from the k most likely tokens; 0: from all.",
    ),
    click.option(
        "--top-p",
        type=Within(0, 1),
        default=1.0,
        show_default=True,
        help="Draw from the most likely tokens whose probabilities sum to p.",
    ),
    click.option(
        "--repetition-penalty",
        type=Within(0, min_open=True),
        default=1.0,
        show_default=True,
        help="Penalty for tokens that have occurred; 1: none.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        default=0,
        show_default=True,
        help="Seed of the draws; it gives the same text on every machine.",
    ),
    click.option(
        "--max-sequences", type=POSITIVE, help="With several prompts: most of them in one pass; 16 by default."
    ),
    click.option("--chunk", type=POSITIVE, help="Most tokens of a prompt in one such pass; 128 by default."),
    click.option(
        "--radix-cache/--no-radix-cache",
        default=None,
        help="Read the common beginning of several prompts only once; on by default.",
    ),
    devices_option,
)
