"""The process in which ``tritgold bench`` has ``tritgold serve``: over HTTP for its clients, and called without HTTP.

``python -m tritgold_conformance.commands.serve_worker THREADS``; requests and answers are those of ``bench.json_rpc``.
"""

import json
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tritgold.errors import TritgoldError
from tritgold.golden import embedded_model
from tritgold_conformance.bench import json_rpc
from tritgold_conformance.bench.clients import asked
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.processes import use_processors
from tritgold_conformance.commands.model_input import open_tokenizer
from tritgold_conformance.commands.open_service import LOOPBACK, open_service
from tritgold_conformance.commands.serve import serve, server_module


class ServeWorker:
    """Handlers of the JSON protocol: one server."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._service: Any = None

    def open(self, path: str, options: list[str]) -> dict[str, Any]:
        """Serve a checkpoint at a free port. options: of ``tritgold serve``, as words.

        Raises MissingDependencyError without the libraries of the extra ``serve``.
        """
        serving = server_module()
        checkpoint = quietly_opened(Path(path))
        try:
            open_tokenizer(checkpoint, None)
        except TritgoldError:  # a synthetic model's words have no letters
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tritgold-")))
            options = [*options, "--tokenizer", str(stand_in_tokenizer(checkpoint.config.vocab, folder))]
        given = serve.make_context("serve", [path, *options]).params
        self._service = open_service(checkpoint, path, None, given)
        socket = serving.listening(LOOPBACK[0], 0)
        running = serving.Server(self._service, 0.0)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [socket]})
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(running.stop)
        return {"port": socket.getsockname()[1]}

    def direct(self, prompts: list[list[int]], clients: int, tokens: int) -> dict[str, Any]:
        """Clients that call the core."""
        from tritgold_conformance.serving.load import directly

        done = asked(directly(self._service, tokens), prompts, clients)
        return {"answered": done.answered, "seconds": done.seconds}

    def close(self) -> None:
        """End the server."""
        self._stack.close()


def stand_in_tokenizer(vocab: int, folder: Path) -> Path:
    """kjv-ar's, with words for the other ids."""
    with embedded_model("kjv-ar") as path:
        known = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    there = known["model"]["vocab"]
    there.update({f"word{number}": number for number in range(max(there.values()) + 1, vocab)})
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(known), encoding="utf-8")
    return file


if __name__ == "__main__":
    use_processors(int(sys.argv[1]))
    one = ServeWorker()
    try:
        json_rpc.serve({"open": one.open, "direct": one.direct})
    finally:
        one.close()
