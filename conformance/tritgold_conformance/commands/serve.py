"""tritgold serve: a model as an HTTP server."""

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritgold.options import DECODE
from tritgold_conformance.commands import backends, model_input, printing
from tritgold_conformance.commands.decoding import Decoding
from tritgold_conformance.commands.decoding_names import BACKENDS
from tritgold_conformance.commands.named import Named, Within
from tritgold_conformance.commands.options import devices_option

if TYPE_CHECKING:
    from tritgold.checkpoint import Checkpoint
    from tritgold_conformance.commands.server_config import ServerConfig
    from tritgold_conformance.serving.service import Service

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.argument("model", required=False)
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True)
@click.option("--host", help="Address to listen at; else 127.0.0.1. Any but this machine needs --api-key-file.")
@click.option("--port", type=click.IntRange(0, 65535), help="Else 8080; 0: a free one.")
@click.option("--api-key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Keys, one a line: each request must bear one of them.")  # fmt: skip
@click.option("--name", help="What the model is called in the API; else its file's name.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json, instead of the model's own.")
@click.option("--chat-template", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A Jinja file, instead of the model's own template.")  # fmt: skip
@click.option(
    "--decode",
    type=click.Choice(DECODE),
    help="Where a request says nothing; else as trained.",
)
@click.option("--kv-cache", type=Named(), help="How keys and values are kept; else f32, exact.")
@click.option(
    "--kv-memory", type=click.IntRange(1), default=2048, show_default=True, help="MiB of the KV cache at most."
)
@click.option("--max-sequences", type=click.IntRange(1, 1024), help="Texts in one pass; else 16, with xla 4.")
@click.option("--chunk", type=click.IntRange(1), default=128, show_default=True, help="Tokens of a prompt a pass.")
@click.option("--radix-cache/--no-radix-cache", default=None, help="Whether prompts that begin alike are read once.")
@click.option("--cache-reuse", type=click.IntRange(0), default=0, metavar="TOKENS",
              help="An approximation: pieces of so many tokens elsewhere in the KV cache are moved (xla).")  # fmt: skip
@click.option("--queue", type=click.IntRange(0), default=64, show_default=True, help="Texts that may wait; then 429.")
@click.option("--max-tokens", type=click.IntRange(1), help="Of one answer; else as many as the context has.")
@click.option("--max-body", type=click.IntRange(1), default=8, show_default=True, help="MiB of a request.")
@click.option("--connections", type=click.IntRange(1), default=256, show_default=True, help="At once.")
@click.option("--timeout", type=Within(0, min_open=True), default=600.0, show_default=True, help="Seconds a request.")
@click.option("--grace", type=Within(0), default=30.0, show_default=True,
              help="Seconds that texts under way may take when the server is told to stop.")  # fmt: skip
@devices_option
@click.option("--benchmark", is_flag=True,
              help="Time 1, 4, 16 clients, by HTTP and directly; print JSON, and end.")  # fmt: skip
@click.option("--log-prompts", is_flag=True, help="Prompts, as ids, are part of the log.")
@click.option("--defect", multiple=True, metavar="FAULT",
              help="A fault of tritgold faults in the reference, for judges to find.")  # fmt: skip
@click.option("--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A block-diffusion server's YAML; options given here count for more.")  # fmt: skip
@model_input.model_options
def serve(model: str | None, reading: model_input.Reading, config_file: Path | None, **given: Any) -> None:
    """Serve a model over HTTP: OpenAI's completions and chat, and llama.cpp's endpoints.

    MODEL is a checkpoint folder, a GGUF or SGLBITNT file, or an embedded model: kjv-ar (the default), kjv-dlm,
    skills-ar, skills-dlm, seeded.
    Requests in flight share every pass, and no answer depends on what else is being served.

    Listens at 127.0.0.1:8080 unless told otherwise, writes a line of JSON to stderr for each request, without its
    texts, and ends on SIGTERM or Ctrl-C when the texts under way have ended.
    """
    with printing.errors(as_json=False):
        server = None
        if config_file is not None:
            from tritgold_conformance.commands.server_config import load

            server = load(config_file)
            model = model or server.model(os.environ)
        with model_input.model_path(model) as path:
            checkpoint = reading.open(path)
            _serve(checkpoint, model_input.model_name(model), server, given)


def _serve(checkpoint: "Checkpoint", model: str, server: "ServerConfig | None", given: dict[str, Any]) -> None:
    serving = _serving()
    host = given["host"] or (server["host"] if server and "host" in server.given else "127.0.0.1")
    port = given["port"] if given["port"] is not None else server["port"] if server else 8080
    if host not in LOOPBACK and given["api_key_file"] is None:
        raise click.UsageError(f"--host {host}: others than this machine may ask; give --api-key-file FILE")
    service = opened(checkpoint, model, server, given, host)
    socket = serving.listening(host, port)
    running = serving.Server(service, given["grace"])
    shown = f"[{host}]" if ":" in host else host
    if given["benchmark"] or (server and server["benchmark.enabled"]):
        _benchmark(running, service, socket, server)
        return
    service.log({"event": "listening", "url": f"http://{shown}:{socket.getsockname()[1]}", "model": service.name})
    running.run(sockets=[socket])
    service.core.join(given["grace"])
    if service.core.lost is not None:
        raise service.core.lost


def _benchmark(running: Any, service: "Service", socket: Any, server: "ServerConfig | None") -> None:
    """Of the server's file, or by its defaults: prompt, requests, tokens."""
    from tritgold_conformance.commands.server_config import KEYS
    from tritgold_conformance.serving.load import benchmark

    prompt, requests, tokens = (
        server[key] if server is not None else KEYS[key].default
        for key in ("benchmark.prompt", "benchmark.iterations", "benchmark.max_tokens")
    )
    thread = threading.Thread(target=running.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        ids = service.encode(prompt, "benchmark.prompt") if service.tokenizer is not None else [0] * 8
        service.log = lambda fields: None
        rows = benchmark(service, socket.getsockname()[1], ids, requests, tokens)
    finally:
        running.stop()
        thread.join()
    facts = {
        "schema": "tritgold.served/1",
        "model": service.name,
        "backend": service.backend,
        "prompt_tokens": len(ids),
    }
    printing.print_json({**facts, "tokens": tokens, "rows": rows})


def opened(
    checkpoint: "Checkpoint",
    model: str,
    server: "ServerConfig | None",
    given: Mapping[str, Any],
    host: str = LOOPBACK[0],
) -> "Service":
    """The model, ready to be asked. given: the options of the command, by their names."""
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
    backends.refuse(given["backend"], decoding.way(checkpoint.config), decoding)
    way, blocks = decoding.way(checkpoint.config), _blocks(decoding, checkpoint)
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
        prompts=given["log_prompts"], decode=way, blocks=blocks, local=host in LOOPBACK and not keys,
        approximations={"cache_reuse": given["cache_reuse"]} if given["cache_reuse"] else {},
    )  # fmt: skip


def _engine(
    checkpoint: "Checkpoint", server: "ServerConfig | None", given: Mapping[str, Any], decoding: Decoding
) -> tuple[int, Any, Any]:
    """How many texts share a pass, what makes the model, again after a crash, and what decodes blocks."""
    from tritgold.decode.serving_options import Serving
    from tritgold_conformance.serving import diffusing, served_models
    from tritgold_conformance.serving.xla_scheduler import XlaScheduler

    def of_file(name: str, otherwise: Any) -> Any:
        own, key = given.get(name), f"scheduler.{name if name != 'radix_cache' else 'enable_radix_cache'}"
        return own if own is not None else server[key] if server is not None else otherwise

    memory, scheme, reuse = given["kv_memory"] << 20, decoding.kv_scheme(), of_file("radix_cache", True)
    if given["backend"] == "xla":
        if given["defect"]:
            raise click.UsageError("--defect: with --backend reference")
        sequences = of_file("max_sequences", 4)
        least, devices = given["cache_reuse"], decoding.devices
        first = [served_models.xla_model(checkpoint, sequences, scheme, memory, reuse, devices, least)]
        engine = first[0].engine
        made = lambda: first.pop() if first else XlaScheduler(engine, reuse, least)  # noqa: E731
        return sequences, made, diffusing.xla_blocks(engine)
    if given["cache_reuse"]:
        raise click.UsageError("--cache-reuse: with --backend xla; the reference approximates nothing")
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
    if file is None:
        return ()
    keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if not keys:
        raise click.UsageError(f"--api-key-file {file}: holds no key")
    return keys


def _log() -> Any:
    lock = threading.Lock()

    def log(fields: Mapping[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **fields}, ensure_ascii=True)
        with lock:
            click.echo(line, file=sys.stderr)

    return log


def _serving() -> Any:
    """The module of the server. Raises MissingDependencyError without its libraries."""
    from tritgold.errors import MissingDependencyError

    try:
        return importlib.import_module("tritgold_conformance.serving.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "prometheus_client"):
            raise
        hint = "install it: pip install 'tritgold[serve]'"
        raise MissingDependencyError(
            "the server needs another package", kind="no-serve", thing=error.name, hint=hint
        ) from None
