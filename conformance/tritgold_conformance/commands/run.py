"""tritgold run: generate tokens."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritgold_conformance.commands import common

if TYPE_CHECKING:
    import numpy as np

    from tritgold.checkpoint import Checkpoint

BACKENDS = ("reference", "xla")


@click.command()
@click.argument("model", required=False)
@common.input_options
@click.option("--max-tokens", default=32, show_default=True, help="Tokens to generate at most.")
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True)
@common.model_options
@common.json_option
def run(
    model: str | None,
    prompt: str | None,
    ids: list[int] | None,
    tokenizer: Path | None,
    max_tokens: int,
    backend: str,
    linear_class: str | None,
    ignore_keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Generate text greedily.

    MODEL is a checkpoint folder or a GGUF file; without it, the embedded model.

    Prints the text as it comes, or the ids where the model has no tokenizer and --ids was given. Ends at an
    end-of-sequence token, at --max-tokens, or when the context is full; the reason goes to stderr.
    """
    from tritgold.decode.autoregressive import greedy
    from tritgold.tokenizer import TextStream, Tokenizer

    with common.errors(as_json), common.model_path(model) as path:
        checkpoint = common.open_model(path, linear_class, ignore_keys)
        tokens = common.token_ids(checkpoint, prompt, ids, tokenizer)
        file = common.tokenizer_path(path, tokenizer)
        stream = TextStream(Tokenizer(file)) if file.is_file() else None
        generated: list[int] = []
        pieces: list[str] = []
        reason = None

        def show(piece: str) -> None:
            pieces.append(piece)
            if not as_json:
                click.echo(piece, nl=False)

        started = time.perf_counter()
        steps = greedy(
            tokens, checkpoint.config, next_logits(checkpoint, backend, len(tokens) + max_tokens), max_tokens
        )
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
                    "model": model or common.EMBEDDED,
                    "backend": backend,
                    "prompt_ids": tokens,
                    "ids": generated,
                    "text": "".join(pieces) if stream else None,
                    "reason": reason,
                    "seconds": round(seconds, 3),
                }
            )
            return
        click.echo()
        click.echo(f"[{reason}: {len(generated)} tokens in {seconds:.1f} s, {backend}]", err=True)


def next_logits(checkpoint: "Checkpoint", backend: str, capacity: int) -> "Callable[[list[int]], np.ndarray]":
    """The chosen engine as the function that decoding knows."""
    if backend == "reference":
        from tritgold.decode.autoregressive import reference_logits

        return reference_logits(checkpoint.weights, checkpoint.config, capacity)
    from tritgold_conformance.engines.xla import open_engine

    engine = open_engine(checkpoint, capacity)
    return lambda tokens: engine.step(tokens[0]) if len(tokens) == 1 else engine.prefill(tokens)[-1]
