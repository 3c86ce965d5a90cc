"""The work of ``tritgold run``: one text while it is generated, or several by a batch server; then a summary."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tritgold.checkpoint import Checkpoint
from tritgold.errors import FormatError
from tritgold.tokenizer import TextStream, Tokenizer
from tritgold_conformance.chat.template import chat_ids
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.decoding import Decoding
from tritgold_conformance.commands.generation import Made, generation
from tritgold_conformance.commands.server_config import load
from tritgold_conformance.commands.serving import is_batch, serve_prompts


def run_prompts(
    model: str | None,
    prompt: tuple[str, ...],
    ids: tuple[list[int], ...],
    tokenizer: Path | None,
    max_tokens: int,
    backend: str,
    chat: bool,
    system: str | None,
    padding_ids: bool,
    config_file: Path | None,
    reading: model_input.Reading,
    as_json: bool,
    **of_decoding: Any,
) -> None:
    """Run the command. of_decoding: the fields of ``Decoding``."""
    decoding = Decoding(**of_decoding)
    with printing.errors(as_json):
        server = None if config_file is None else load(config_file)
        if server is not None:
            model = model or server.model(os.environ)
        with model_input.model_path(model) as path:
            checkpoint, unused = reading.open(path), tuple[str, ...]()
            if server is not None:
                decoding, unused = decoding.filled(server, checkpoint.config)
            if bool(prompt) == bool(ids):
                raise click.UsageError("give --prompt or --ids, and not both")
            if (chat and ids) or (system is not None and not chat):
                raise click.UsageError("--chat goes with --prompt, and --system with --chat")
            if chat:
                words = model_input.require_tokenizer(checkpoint, tokenizer)
                prompts = [chat_ids(checkpoint, words, text, system) for text in prompt]
            else:
                prompts = [model_input.token_ids(checkpoint, text, None, tokenizer) for text in prompt] or list(ids)
            opened = tokenizer_for_output(checkpoint, tokenizer)
            if opened is not None and not padding_ids:
                decoding = without_padding(decoding, checkpoint, opened)
            about = {"model": model_input.model_name(model), "backend": backend, "config_unused": list(unused)}
            if is_batch(prompts, decoding):
                report = serve_prompts(checkpoint, prompts, opened, max_tokens, backend, decoding)
                show_batch(report | about, as_json)
                return
            started = time.perf_counter()
            steps, facts = generation(checkpoint, prompts[0], max_tokens, backend, decoding)
            show_text(steps, opened, {"prompt_ids": prompts[0]} | about, facts, started, as_json)


def show_text(
    steps: Iterator[Made],
    tokenizer: Tokenizer | None,
    about: dict[str, Any],
    facts: dict[str, Any],
    started: float,
    as_json: bool,
) -> None:
    """Print the text while it is generated, or one JSON object at its end.

    about, facts: for the report; facts is complete after the last token. started: a value of ``time.perf_counter``.
    """
    stream = None if tokenizer is None else TextStream(tokenizer)
    generated: list[int] = []
    pieces: list[str] = []
    reason = None

    def show(piece: str) -> None:
        pieces.append(piece)
        if not as_json:
            click.echo(piece, nl=False)

    for token, reason in steps:  # noqa: B007  the last reason is the text's
        if token is None:
            continue
        generated.append(token)
        show(stream.push(token) if stream else f"{',' if generated[1:] else ''}{token}")
    if stream:
        show(stream.finish())
    seconds = time.perf_counter() - started
    if as_json:
        text = "".join(pieces) if stream else None
        made = {"ids": generated, "text": text, "reason": reason, "seconds": round(seconds, 3)}
        printing.print_json({"schema": "tritgold.run/1", **about, **made, **facts})
        return
    click.echo()
    forwards = f", {counted(facts['forwards'], 'pass', 'passes')}" if "forwards" in facts else ""
    tokens = counted(len(generated), "token")
    click.echo(f"[{reason}: {tokens} in {seconds:.1f} s{forwards}, {about['backend']}]", err=True)
    for line in remarks(facts, about["config_unused"]):
        click.echo(f"[{line}]", err=True)


def counted(number: int, one: str, more: str = "") -> str:
    """1 token, 2 tokens."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def show_batch(report: dict[str, Any], as_json: bool) -> None:
    """Print a text for each prompt, by number. If a prompt failed, the others are shown and the exit code is 3."""
    if as_json:
        printing.print_json({"schema": "tritgold.run-batch/1", **report})
    else:
        for number, text in enumerate(report["texts"], 1):
            said = ",".join(map(str, text["ids"])) if text["text"] is None else text["text"]
            click.echo(f"[{number}] {said}")
            reused = f", {text['reused']} of the prompt cached" if text["reused"] else ""
            why = f": {text['error']}" if text["error"] else ""
            click.echo(f"[{number}: {text['reason']}: {counted(len(text['ids']), 'token')}{reused}{why}]", err=True)
        passes = counted(report["counters"]["forwards"], "pass", "passes") + ", " if report["counters"] else ""
        click.echo(f"[{passes}{report['seconds']:.1f} s, {report['backend']}]", err=True)
        for line in remarks(report, report["config_unused"]):
            click.echo(f"[{line}]", err=True)
    if any(text["error"] for text in report["texts"]):
        sys.exit(printing.COULD_NOT_JUDGE)


def tokenizer_for_output(checkpoint: Checkpoint, given: Path | None) -> Tokenizer | None:
    """The tokenizer for the output; None (ids are printed) without one, or if a GGUF's tokenizer cannot be built."""
    try:
        return model_input.open_tokenizer(checkpoint, given)
    except FormatError as error:
        if not error.kind.startswith("tokenizer-"):
            raise
        click.echo(f"[ids only: {error}]", err=True)  # with --ids no tokenizer is needed
        return None


def without_padding(decoding: Decoding, checkpoint: Checkpoint, tokenizer: Tokenizer) -> Decoding:
    """If the model's vocabulary is larger than the tokenizer's, the options without the ids that have no text."""
    vocab, texts = checkpoint.config.vocab, tokenizer.ids
    if vocab == texts:
        return decoding
    if vocab < texts:
        click.echo(
            f"[the tokenizer has {texts} ids, the model only {vocab}: texts with larger ids are refused]", err=True
        )
        return decoding
    never = "" if decoding.way(checkpoint.config) == "ar" else " (block diffusion may choose them)"
    what = (
        f"the model has {vocab} ids, the tokenizer {texts}: ids from {texts} on have no text and are not chosen{never}"
    )
    click.echo(f"[{what}]", err=True)
    return replace(decoding, text_ids=texts)


def remarks(facts: dict[str, Any], unused: list[str]) -> list[str]:
    """Lines for stderr: the size of an inexact cache, measured sparsity, configuration keys without effect."""
    lines = []
    if (cache := facts.get("kv_cache")) and cache["scheme"] != "f32":
        size = f"{cache['bits_per_value']:g} bits a value, {cache['bytes_per_token']:,} bytes a token"
        lines.append(f"KV cache {cache['scheme']}: {size}")
        if cache.get("across_heads"):
            lines.append(
                "its blocks of 32 extend over two heads, as in llama.cpp; engines with blocks within a head differ"
            )
    if sparse := facts.get("sparsity"):
        shares = ", ".join(f"{place} {share:.1%}" for place, share in sparse["measured"].items())
        lines.append(f"measured sparsity: {shares}")
    if unused:
        lines.append(f"keys of the configuration that are not used here: {', '.join(unused)}")
    return lines
