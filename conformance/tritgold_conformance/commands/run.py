"""tritgold run: generate tokens."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritgold_conformance.commands import common

if TYPE_CHECKING:
    import numpy as np

    from tritgold.checkpoint import Checkpoint
    from tritgold.decode.autoregressive import Step

BACKENDS = ("reference", "xla")
# "ar" and the presets of tritgold.decode.diffusion_presets, which is not imported for --help; a test compares them.
DECODE = (
    "ar", "fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block", "llada", "dream"
)  # fmt: skip


@click.command()
@click.argument("model", required=False)
@common.input_options
@click.option("--max-tokens", default=32, show_default=True, help="Tokens to generate at most.")
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True)
@click.option("--decode", type=click.Choice(DECODE), help="ar: a token a pass; the others: ways of block diffusion.")
@click.option("--threshold", type=click.FloatRange(0), help="Confidence that decides a token; 1: a token a pass.")
@click.option("--block-size", type=click.IntRange(1), help="Tokens of a block, instead of the model's own number.")
@click.option("--sub-block-size", type=click.IntRange(1), help="Tokens of a group within a block.")
@common.model_options
@common.json_option
def run(
    model: str | None,
    prompt: str | None,
    ids: list[int] | None,
    tokenizer: Path | None,
    max_tokens: int,
    backend: str,
    decode: str | None,
    threshold: float | None,
    block_size: int | None,
    sub_block_size: int | None,
    reading: common.Reading,
    as_json: bool,
) -> None:
    """Generate text greedily.

    MODEL is a checkpoint folder, a GGUF file, or an embedded model: kjv-ar (the default), kjv-dlm, seeded. A
    block-diffusion model such as kjv-dlm fills blocks of tokens, the way of Fast-dLLM v2 unless --decode names another;
    any other model gives one token after the other.

    Prints the text as it comes (block diffusion: at the end), or the ids where the model has no tokenizer and --ids
    was given. Ends at an end-of-sequence token, at --max-tokens, or when the context is full; the reason goes to
    stderr.
    """
    from tritgold.decode.autoregressive import greedy
    from tritgold.errors import FormatError
    from tritgold.tokenizer import TextStream

    with common.errors(as_json), common.model_path(model) as path:
        checkpoint = reading.open(path)
        tokens = common.token_ids(checkpoint, prompt, ids, tokenizer)
        try:
            opened = common.open_tokenizer(checkpoint, tokenizer)
        except FormatError as error:
            if not error.kind.startswith("tokenizer-"):
                raise
            click.echo(f"[ids only: {error}]", err=True)  # a GGUF's tokenizer, and --ids makes do without it
            opened = None
        stream = None if opened is None else TextStream(opened)
        generated: list[int] = []
        pieces: list[str] = []
        reason = None
        passes: dict[str, Any] = {}

        def show(piece: str) -> None:
            pieces.append(piece)
            if not as_json:
                click.echo(piece, nl=False)

        started = time.perf_counter()
        steps: Iterable[Step]
        sizes = {"block": block_size, "sub_block": sub_block_size}
        decode = decode or ("ar" if checkpoint.config.block is None else "fast-dllm-v2")
        if decode != "ar":
            steps, passes = diffuse(checkpoint, tokens, max_tokens, backend, decode, threshold, sizes)
        elif threshold is not None or any(sizes.values()):
            raise click.UsageError("thresholds and blocks are for block diffusion, with kjv-dlm for example")
        else:
            capacity = len(tokens) + max(max_tokens, 1)
            steps = greedy(tokens, checkpoint.config, next_logits(checkpoint, backend, capacity), max_tokens)
        for step in steps:
            generated.append(step.token)
            reason = step.reason
            show(stream.push(step.token) if stream else f"{',' if generated[1:] else ''}{step.token}")
        if stream:
            show(stream.finish())
        seconds = time.perf_counter() - started
        if as_json:
            common.print_json(
                {
                    "schema": "tritgold.run/1",
                    "model": common.model_name(model),
                    "backend": backend,
                    "decode": decode,
                    "prompt_ids": tokens,
                    "ids": generated,
                    "text": "".join(pieces) if stream else None,
                    "reason": reason,
                    "seconds": round(seconds, 3),
                    **passes,
                }
            )
            return
        click.echo()
        forwards = f", {passes['forwards']} passes" if passes else ""
        click.echo(f"[{reason}: {len(generated)} tokens in {seconds:.1f} s{forwards}, {backend}]", err=True)


def diffuse(
    checkpoint: "Checkpoint",
    tokens: list[int],
    max_tokens: int,
    backend: str,
    decode: str,
    threshold: float | None,
    sizes: dict[str, int | None],
) -> "tuple[list[Step], dict[str, Any]]":
    """Block diffusion: the tokens, and what a report says of how they came about. sizes: those that were given."""
    from tritgold.decode.autoregressive import Step
    from tritgold.decode.block_diffusion import block_diffusion
    from tritgold.decode.block_model import reference_block_model
    from tritgold.decode.diffusion_presets import THRESHOLD, preset

    if backend != "reference":
        raise click.UsageError(f"block diffusion has no --backend {backend} yet; leave the option out")
    if decode == "greedy" and threshold is not None:
        raise click.UsageError("--decode greedy decides whole blocks; it has no threshold")
    threshold = THRESHOLD if threshold is None else threshold
    options = preset(decode, threshold, **{name: size for name, size in sizes.items() if size})
    config, capacity = checkpoint.config, len(tokens) + max(max_tokens, 1)
    model = reference_block_model(checkpoint.weights, config, options, capacity)
    done = block_diffusion(tokens, config, model, max_tokens, options)
    assert done.reason != "stuck", "that takes a defect"
    steps = [Step(token, None) for token in done.tokens[:-1]] + [Step(token, done.reason) for token in done.tokens[-1:]]
    return steps, {
        "threshold": None if decode == "greedy" else threshold,
        "forwards": done.forwards,
        "commits": done.commits,
        "tokens_per_forward": round(done.tokens_per_forward, 4),
        "forwards_per_block": list(done.forwards_per_block),
        "order": done.order,
    }


def next_logits(checkpoint: "Checkpoint", backend: str, capacity: int) -> "Callable[[list[int]], np.ndarray]":
    """The chosen engine as the function that decoding knows."""
    if backend == "reference":
        from tritgold.decode.autoregressive import reference_logits

        return reference_logits(checkpoint.weights, checkpoint.config, capacity)
    from tritgold_conformance.engines.xla import open_engine

    engine = open_engine(checkpoint, capacity)
    return lambda tokens: engine.step(tokens[0]) if len(tokens) == 1 else engine.prefill(tokens)[-1]
