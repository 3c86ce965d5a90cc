"""``tritgold serve`` beside other servers under crowds, until it refuses; ``tritgold bench --rows serve`` times it.

``python -m measure.serving_load --out docs/data/serve-load.json --llama-server ik_llama.cpp=/path/to/llama-server``

Other servers: ``--peer NAME=COMMAND``, as often as one likes, with {port} for the port to listen at and {model} for the
GGUF file: TQ2_0, or with the name of an engine that ``tritgold bench`` knows the format that is fastest there.
--llama-server is such a command. Each has one thread and four texts in a pass, and the same weights: random ones of the
notebook's 2B shape with fewer layers and Llama's graph, which all compute right. Prompts of 64 ids, none beginning as
another does, 32 tokens each, greedy.

``refusing``: so many clients at once, each with one request and no second try: what was answered, how the others were
told, and after how long.
"""

import argparse
import contextlib
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from measure.report import lines, rounded
from tritgold.trace import versions
from tritgold_conformance.bench.clients import RefusedError, over_http
from tritgold_conformance.bench.peer_files import for_llama_cpp
from tritgold_conformance.bench.peer_names import FORMATS, Peer
from tritgold_conformance.bench.shapes import MODELS, ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.commands.launch import two_free_ports
from tritgold_conformance.commands.serve_worker import stand_in_tokenizer
from tritgold_conformance.serving.load import load

SCHEMA = "tritgold.serve_load/2"
OWN = "tritgold serve"
(NOTEBOOK,) = [shape for shape in MODELS if shape.name == "notebook-2b"]
SHAPE = replace(
    NOTEBOOK.cut(2),
    activation="silu",
    sub_norms=False,
    architecture="llama",
    context=1024,
    name="notebook-2b-2layers-llama",
)
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
LLAMA_SERVER = "{path} -m {{model}} -t 1 -tb 1 -np {slots} -c {context} --host 127.0.0.1 --port {{port}}"


@dataclass(frozen=True)
class Sizes:
    """What is asked. crowds: of ours; peer_crowds: of the others, which refuse nothing. slots: texts in one pass.

    own: options of our server.
    """

    shape: ModelShape = SHAPE
    crowds: tuple[int, ...] = (16, 64, 96, 192, 320)
    peer_crowds: tuple[int, ...] = (16, 96)
    slots: int = 4
    prompt: int = 64
    tokens: int = 32
    own: tuple[str, ...] = field(default=("--backend", "xla"))


def commands(sizes: Sizes, folder: Path, peers: dict[str, str]) -> dict[str, list[str]]:
    """Servers by name, with {port} to be filled in."""
    model = synthetic_model(sizes.shape, folder)
    own = [sys.executable, "-W", "ignore", "-m", "tritgold_conformance", "serve", str(model), "--port", "{port}"]
    own += ["--tokenizer", str(stand_in_tokenizer(sizes.shape.vocab, folder)), "--max-sequences", str(sizes.slots)]
    found = {OWN: [*own, *sizes.own]}
    for name, command in peers.items():
        file = for_llama_cpp(model, sizes.shape.name, Peer(name), print) if name in FORMATS else model
        found[name] = [word.format(model=file, port="{port}") for word in shlex.split(command)]
    return found


@contextmanager
def started(command: Sequence[str], folder: Path) -> Iterator[int]:
    """The port of a server that answers; it is ended at the end. Raises RuntimeError with its last words if it ends."""
    port = two_free_ports()
    with (folder / "log").open("wb") as log:
        words = [word.replace("{port}", str(port)) for word in command]
        # In the folder: llama-server writes a log where it is started.
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | ONE_THREAD, cwd=folder
        )
        try:
            until = time.monotonic() + 300
            while not _answers(port):
                if time.monotonic() > until or process.poll() is not None:
                    raise RuntimeError(f"no server: {(folder / 'log').read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(Exception):
        over_http(port, 1)([5, 6, 7])
        return True
    return False


def prompts(sizes: Sizes, count: int, seed: int) -> list[list[int]]:
    """Random ids; of no two the first ones are the same."""
    vocab = sizes.shape.vocab
    drawn = np.random.default_rng(seed).integers(3, vocab, (count, sizes.prompt))
    drawn[:, 0] = 3 + (seed * 331 + np.arange(count)) % (vocab - 3)
    return [[int(token) for token in row] for row in drawn]


def crowd(sizes: Sizes, port: int, clients: int, seed: int) -> dict[str, Any]:
    """So many requests at once: counts by status, seconds of both kinds, tokens a second."""
    ask, asked = over_http(port, sizes.tokens), prompts(sizes, clients, seed)
    answered, refused, failed = list[float](), list[tuple[float, int, str | None]](), list[str]()
    barrier = threading.Barrier(clients + 1)

    def client(prompt: list[int]) -> None:
        barrier.wait()
        began = time.perf_counter()
        try:
            answered.append(ask(prompt).whole)
        except RefusedError as error:
            refused.append((time.perf_counter() - began, error.status, error.retry))
        except Exception as error:
            failed.append(type(error).__name__)

    threads = [threading.Thread(target=client, args=(prompt,)) for prompt in asked]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    statuses = [status for _, status, _ in refused]
    return {
        "clients": clients,
        "answered": len(answered),
        "refused": {str(status): statuses.count(status) for status in sorted(set(statuses))},
        "failed": {name: failed.count(name) for name in sorted(set(failed))},
        "retry_after": sorted({int(retry) for _, _, retry in refused if retry is not None}),
        "requests_per_second": rounded(len(answered) / seconds),
        "tokens_per_second": rounded(len(answered) * sizes.tokens / seconds),
        "p50": rounded(statistics.median(answered)) if answered else None,
        "p99": rounded(float(np.percentile(answered, 99))) if answered else None,
        "refused_after": rounded(max(took for took, _, _ in refused)) if refused else None,
    }


def report(sizes: Sizes, folder: Path, peers: dict[str, str]) -> dict[str, Any]:
    """The measurement. peers: commands by name."""
    servers = commands(sizes, folder, peers)
    refusing = []
    for name, command in servers.items():
        print(f"crowds: {name}", file=sys.stderr, flush=True)
        with started(command, folder) as port:
            load(over_http(port, sizes.tokens), prompts(sizes, 2, 50), 1)
            for n, clients in enumerate(sizes.crowds if name == OWN else sizes.peer_crowds):
                refusing.append({"server": name, **crowd(sizes, port, clients, 10 + n)})
    return {
        "schema": SCHEMA,
        "machine": {**versions(), "cores": os.cpu_count()},
        "model": sizes.shape.name,
        "slots": sizes.slots,
        "prompt_tokens": sizes.prompt,
        "tokens": sizes.tokens,
        "refusing": refusing,
    }


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--llama-server", action="append", default=[], metavar="[NAME=]PATH", help="llama.cpp's, or a fork's"
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    sizes = Sizes()
    peers = dict(peer.split("=", 1) for peer in given.peer)
    for program in given.llama_server:
        name, _, file = program.rpartition("=")
        path, context = shlex.quote(str(Path(file).absolute())), sizes.slots * 256
        peers[name or "llama.cpp"] = LLAMA_SERVER.format(path=path, slots=sizes.slots, context=context)
    with tempfile.TemporaryDirectory(prefix="tritgold-load-") as folder:
        given.out.write_text(lines(report(sizes, Path(folder), peers)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
