"""tritgold serve: serves a model over HTTP."""

import importlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritgold.options import DECODE
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.decoding_options import BACKENDS
from tritgold_conformance.commands.open_service import LOOPBACK, open_service
from tritgold_conformance.commands.options import ANY_PATH, FILE, POSITIVE, Named, Within, devices_option

if TYPE_CHECKING:
    from tritgold.checkpoint import Checkpoint
    from tritgold_conformance.commands.server_config import ServerConfig
    from tritgold_conformance.serving.service import Service


@click.command()
@click.argument("model", required=False)
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True)
@click.option("--host", help="Address; 127.0.0.1 by default. An address that others can reach needs --api-key-file.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 8080 by default, 0: a free one.")
@click.option("--api-key-file", type=FILE, help="API keys, one per line; each request must have one of them.")
@click.option("--name", help="Name of the model in the API; by default its file's name.")
@click.option("--tokenizer", type=ANY_PATH, help="A tokenizer.json, instead of the model's own.")
@click.option("--chat-template", type=FILE, help="A Jinja file, instead of the model's own template.")
@click.option("--decode", type=click.Choice(DECODE), help="For requests that name none; by default as trained.")
@click.option("--kv-cache", type=Named(), help="KV cache, as in tritgold run; by default f32, exact.")
@click.option("--kv-memory", type=POSITIVE, default=2048, show_default=True, help="Most MiB for the KV cache.")
@click.option("--max-sequences", type=click.IntRange(1, 1024), help="Most texts in a pass; 16 by default, with xla 4.")
@click.option("--chunk", type=POSITIVE, default=128, show_default=True, help="Most tokens of a prompt in a pass.")
@click.option("--radix-cache/--no-radix-cache", default=None, help="Read the common beginning of prompts only once.")
@click.option("--cache-reuse", type=click.IntRange(0), default=0, metavar="TOKENS",
              help="Approximate: reuse pieces of this length from other positions of the KV cache (xla).")  # fmt: skip
@click.option("--queue", type=click.IntRange(0), default=64, show_default=True, help="Most waiting texts; then 429.")
@click.option("--max-tokens", type=POSITIVE, help="Most tokens of an answer; by default the context.")
@click.option("--max-body", type=POSITIVE, default=8, show_default=True, help="Most MiB of a request.")
@click.option("--connections", type=POSITIVE, default=256, show_default=True, help="Most connections at once.")
@click.option("--timeout", type=Within(0, min_open=True), default=600.0, show_default=True, help="Seconds per request.")
@click.option("--grace", type=Within(0), default=30.0, show_default=True, help="Seconds for open texts at the end.")
@devices_option
@click.option("--benchmark", is_flag=True, help="Time 1, 4, 16 clients, over HTTP and directly; print JSON and end.")
@click.option("--log-prompts", is_flag=True, help="Write the token ids of prompts to the log.")
@click.option("--defect", multiple=True, metavar="FAULT",
              help="Serve with this fault of tritgold faults (reference), to test a judge.")  # fmt: skip
@click.option("--config", "config_file", type=FILE, help="YAML of a block-diffusion server; options come first.")
@model_input.model_options
def serve(model: str | None, reading: model_input.Reading, config_file: Path | None, **given: Any) -> None:
    """Serve a model over HTTP: OpenAI's completions and chat, and llama.cpp's endpoints.

    MODEL is a checkpoint folder, a GGUF or SGLBITNT file, or an embedded model: kjv-ar (the default), kjv-dlm,
    kjv-ar-v2 and kjv-dlm-v2 (trained longer), skills-ar, skills-dlm, seeded.
    Requests are computed together, and no answer depends on the other requests.

    Listens on 127.0.0.1:8080 by default, writes a line of JSON to stderr for each request, without its texts, and ends
    on SIGTERM or Ctrl-C, after unfinished texts.
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
    serving = server_module()
    host = given["host"] or (server["host"] if server and "host" in server.given else "127.0.0.1")
    port = given["port"] if given["port"] is not None else server["port"] if server else 8080
    if host not in LOOPBACK and given["api_key_file"] is None:
        raise click.UsageError(f"--host {host} can be reached from other machines; give --api-key-file FILE")
    service = open_service(checkpoint, model, server, given, host)
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
    """Time the server, print JSON and stop. Prompt, requests and tokens: of the configuration, or its defaults."""
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


def server_module() -> Any:
    """The module ``serving.server``. Raises MissingDependencyError if one of its libraries is not installed."""
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
