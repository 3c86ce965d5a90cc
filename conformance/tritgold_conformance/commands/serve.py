"""tritgold serve: a model as an HTTP server."""

import importlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritgold.options import DECODE
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.decoding_names import BACKENDS
from tritgold_conformance.commands.named import Named, Within
from tritgold_conformance.commands.open_service import LOOPBACK, open_service
from tritgold_conformance.commands.options import devices_option

if TYPE_CHECKING:
    from tritgold.checkpoint import Checkpoint
    from tritgold_conformance.commands.server_config import ServerConfig
    from tritgold_conformance.serving.service import Service


@click.command()
@click.argument("model", required=False)
@click.option("--backend", type=click.Choice(BACKENDS), default="reference", show_default=True)
@click.option("--host", help="Address to listen at; else 127.0.0.1. Any but this machine needs --api-key-file.")
@click.option("--port", type=click.IntRange(0, 65535), help="Else 8080; 0: a free one.")
@click.option("--api-key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Keys, one a line: each request needs one of them.")  # fmt: skip
@click.option("--name", help="What the model is called in the API; else its file's name.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json, instead of the model's own.")
@click.option("--chat-template", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A Jinja file, instead of the model's own template.")  # fmt: skip
@click.option(
    "--decode",
    type=click.Choice(DECODE),
    help="Of requests that name none; else as trained.",
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
              help="Seconds that running texts may take when the server is told to stop.")  # fmt: skip
@devices_option
@click.option("--benchmark", is_flag=True,
              help="Time 1, 4, 16 clients, by HTTP and directly; print JSON, and end.")  # fmt: skip
@click.option("--log-prompts", is_flag=True, help="Prompts, as ids, are part of the log.")
@click.option("--defect", multiple=True, metavar="FAULT",
              help="A fault of tritgold faults in the reference, for judges to find.")  # fmt: skip
@click.option("--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A block-diffusion server's YAML; options of the command line override it.")  # fmt: skip
@model_input.model_options
def serve(model: str | None, reading: model_input.Reading, config_file: Path | None, **given: Any) -> None:
    """Serve a model over HTTP: OpenAI's completions and chat, and llama.cpp's endpoints.

    MODEL is a checkpoint folder, a GGUF or SGLBITNT file, or an embedded model: kjv-ar (the default), kjv-dlm,
    skills-ar, skills-dlm, seeded.
    Requests in flight share every pass, and no answer depends on what else is being served.

    By default it listens at 127.0.0.1:8080. It writes a line of JSON to stderr for each request, without its texts,
    and ends on SIGTERM or Ctrl-C when the running texts have ended.
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
        raise click.UsageError(f"--host {host}: other machines can connect; give --api-key-file FILE")
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


def _serving() -> Any:
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
