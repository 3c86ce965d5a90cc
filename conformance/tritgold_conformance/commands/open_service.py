"""Opens the service of tritgold serve: the model with its tokenizer and template, the core, limits, keys and log."""

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritgold_conformance.commands import backends, model_input
from tritgold_conformance.commands.decoding import Decoding

if TYPE_CHECKING:
    from tritgold.checkpoint import Checkpoint
    from tritgold_conformance.commands.server_config import ServerConfig
    from tritgold_conformance.serving.service import Service

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def open_service(
    checkpoint: "Checkpoint",
    model: str,
    server: "ServerConfig | None",
    given: Mapping[str, Any],
    host: str = LOOPBACK[0],
) -> "Service":
    """The model, ready for requests. model: its path or name. given: the options of the command, by their names.

    Raises click.UsageError, and the errors of the model, the tokenizer, the template and the engine.
    """
    from tritgold_conformance.chat.template import chat_template
    from tritgold_conformance.serving.core import Core
    from tritgold_conformance.serving.diffusing import BlockDiffusion
    from tritgold_conformance.serving.service import Limits, Service

    keys = _keys(given["api_key_file"])
    tokenizer = model_input.open_tokenizer(checkpoint, given["tokenizer"])
    template = chat_template(checkpoint, tokenizer, given["chat_template"])
    decoding = Decoding(decode=given["decode"], kv_cache=given["kv_cache"], devices=given.get("devices", 1))
    if server is not None:
        decoding, unused = decoding.filled(server, checkpoint.config)
        if idle := [key for key in unused if key.startswith("dlm.")]:
            click.echo(f"[of the configuration, not used here: {', '.join(idle)}]", err=True)
    way = decoding.way(checkpoint.config)
    backends.refuse(given["backend"], way, decoding)
    log = _log()

    def say(text: str) -> None:
        log({"event": "engine_failed", "traceback": text})

    sequences, made, decode = _engine(checkpoint, server, given, decoding)
    places = sequences + given["queue"]
    limits = Limits(
        body=given["max_body"] << 20,
        tokens=given["max_tokens"],
        seconds=given["timeout"],
        connections=given["connections"],
        requests=places + 32,
        keys=keys,
    )
    return Service(
        given["name"] or Path(model).name, checkpoint, tokenizer, template, Core(made, places, say),
        BlockDiffusion(checkpoint, decode, places, say, sequences), given["backend"], limits, log=log,
        prompts=given["log_prompts"], decode=way, blocks=_blocks(decoding, checkpoint),
        local=host in LOOPBACK and not keys, slots=sequences,
        approximations={"cache_reuse": given["cache_reuse"]} if given["cache_reuse"] else {},
    )  # fmt: skip


def _engine(
    checkpoint: "Checkpoint", server: "ServerConfig | None", given: Mapping[str, Any], decoding: Decoding
) -> tuple[int, Any, Any]:
    """(texts in one pass, a function that makes the model, also after a crash, the decoder of blocks)."""
    from tritgold.decode.serving_options import Serving
    from tritgold_conformance.serving import diffusing, served_models
    from tritgold_conformance.serving.xla_scheduler import XlaScheduler

    def of_file(name: str, otherwise: Any) -> Any:
        own, key = given.get(name), f"scheduler.{name if name != 'radix_cache' else 'enable_radix_cache'}"
        return own if own is not None else server[key] if server is not None else otherwise

    memory, scheme, reuse = given["kv_memory"] << 20, decoding.kv_scheme(), of_file("radix_cache", True)
    if given["backend"] == "xla":
        if given["defect"]:
            raise click.UsageError("--defect needs --backend reference")
        sequences = of_file("max_sequences", 4)
        least, devices = given["cache_reuse"], decoding.devices
        first = [served_models.xla_model(checkpoint, sequences, scheme, memory, reuse, devices, least)]
        engine = first[0].engine
        made = lambda: first.pop() if first else XlaScheduler(engine, reuse, least)  # noqa: E731
        return sequences, made, diffusing.xla_blocks(engine)
    if given["cache_reuse"]:
        raise click.UsageError("--cache-reuse needs --backend xla; the reference approximates nothing")
    tokens = server["scheduler.radix_cache_max_tokens"] if server is not None else Serving.radix_cache_max_tokens
    serving = Serving(of_file("max_sequences", 16), given["chunk"], reuse, tokens, scheme=scheme)
    mutant = served_models.faulty(checkpoint, given["defect"])
    decode = diffusing.reference_blocks(mutant.checkpoint, mutant.arithmetic)
    make = partial(served_models.reference_model, checkpoint, serving, memory, given["defect"])
    return serving.max_sequences, make, decode


def _blocks(decoding: Decoding, checkpoint: "Checkpoint") -> Any:
    from tritgold_conformance.serving.diffusing import BlockOptions

    if decoding.diffusion(checkpoint.config) is None:
        return BlockOptions()
    sizes = decoding.block_size, decoding.sub_block_size, decoding.max_passes
    return BlockOptions(decoding.way(checkpoint.config), decoding.threshold, *sizes)


def _keys(file: Path | None) -> tuple[str, ...]:
    """The API keys of a file, one in each line; none without a file. Raises click.UsageError for an empty file."""
    if file is None:
        return ()
    keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if not keys:
        raise click.UsageError(f"--api-key-file {file}: holds no key")
    return keys


def _log() -> Callable[[Mapping[str, Any]], None]:
    """A function that writes fields as one line of JSON to stderr, from any thread."""
    lock = threading.Lock()

    def log(fields: Mapping[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **fields}, ensure_ascii=True)
        with lock:
            click.echo(line, file=sys.stderr)

    return log
