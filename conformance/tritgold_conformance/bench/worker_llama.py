"""The process in which llama.cpp or a fork of it is judged, by its log-probabilities, and timed, by its own clock.

``python -m tritgold_conformance.bench.worker_llama THREADS PEER``, PEER as ``--peer`` takes it. Without a program it is
xllamacpp in this process; with one, a ``llama-server`` or ``llama-bench`` that inherits this process's processors.
Seconds are those of ``timings``: the prompt without tokenising, and tokens after the first.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tritgold.errors import EngineError
from tritgold_conformance.bench import peer_judge
from tritgold_conformance.bench.json_rpc import serve
from tritgold_conformance.bench.llama_server import WAIT, LlamaServer
from tritgold_conformance.bench.llama_wheel import LlamaWheel
from tritgold_conformance.bench.peer_names import Peer, peer
from tritgold_conformance.bench.processes import use_processors
from tritgold_conformance.golden.run import judging_tokens

SPARE = 64  # positions: the token after a prompt that fills the capacity needs a place
JUDGED = 256  # positions of the server that is judged


def main(threads: int, text: str) -> None:
    """Serve until standard input ends."""
    use_processors(threads)
    one = LlamaPeer(peer(text), threads)
    try:
        serve({name: getattr(one, name) for name in ("judge", "open", "serve", "measure", "facts")})
    finally:
        one.close()


class LlamaPeer:
    """Handlers of the JSON protocol."""

    def __init__(self, named: Peer, threads: int) -> None:
        self._peer, self._threads = named, threads
        self._server: LlamaServer | LlamaWheel | None = None
        self._path, self._vocab = "", 0
        self._has_depth = False  # of a llama-bench: it has the option -d

    def judge(self, path: str) -> dict[str, Any]:
        """Whether its log-probabilities are those of the model in the file."""
        server = self._started(path, JUDGED)
        try:
            passed, text = peer_judge.verdict(server.next_tokens, Path(path))
        finally:
            server.close()
        return {"passed": passed, "text": text}

    def open(self, path: str, capacity: int, vocab: int) -> dict[str, Any]:
        """Load the file. Raises EngineError ``engine-load`` if it is refused."""
        self._path, self._vocab = path, vocab
        if self._peer.benches:
            self._has_depth = "--n-depth" in self._run(["--help"], check=False)
            return {"load": None, "options": self._options()}
        self._server = self._started(path, capacity + SPARE)
        return {"load": self._server.load, "options": self._options()}

    def serve(self, path: str, slots: int, positions: int) -> dict[str, Any]:
        """Another server instead of the open one, with ``slots`` texts in a pass, each of ``positions``: its port."""
        self.close()
        self._server, self._path = self._started(path, slots * positions, slots), path
        return {"port": self._server.port}

    def measure(self, row: str, case: dict[str, Any]) -> dict[str, Any]:
        """One round. A prompt that is timed is never taken from the cache; one that only precedes tokens is."""
        if self._peer.benches:
            return {"seconds": [self._benched(row, case)], "first": None}
        assert self._server is not None
        timed = row in ("prefill", "first-token")
        ids = judging_tokens(case["tokens" if timed else "context"], self._vocab, seed=2)
        steps = 1 if timed else case["steps"] + 1  # the first comes with the prompt, and is not in predicted_ms
        clock = self._server.complete(ids, steps, cache_prompt=not timed)["timings"]
        if clock["predicted_n"] != steps or (timed and clock["prompt_n"] != len(ids)):
            got = f"{clock['prompt_n']} tokens read, {clock['predicted_n']} generated"
            expected = f"{f'{len(ids)} read, ' if timed else ''}{steps} generated"
            raise EngineError("did not do the whole request", kind="peer", thing=self._peer.name, got=got,
                              expected=expected)  # fmt: skip
        seconds = clock["prompt_ms"] / 1e3 if timed else clock["predicted_ms"] / 1e3 / case["steps"]
        return {"seconds": [seconds], "first": None}

    def facts(self) -> dict[str, Any]:
        """Versions, flags and the peak of memory."""
        peak = None if self._server is None else self._server.peak_memory()
        if isinstance(self._server, LlamaWheel):
            return {"versions": self._server.versions(), "flags": self._server.options, "peak_memory": peak}
        first = self._run(["--version"], check=False).strip().splitlines()[:1]
        return {"versions": {self._peer.name: first[0][:80]} if first else {}, "flags": {}, "peak_memory": peak}

    def close(self) -> None:
        """End its server."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _options(self) -> dict[str, str]:
        if isinstance(self._server, LlamaWheel):
            return self._server.options
        return {"program": self._program.name, "head": self._peer.head, "file": Path(self._path).name}

    @property
    def _program(self) -> Path:
        assert self._peer.program is not None
        return self._peer.program

    def _started(self, path: str, positions: int, slots: int = 1) -> LlamaServer | LlamaWheel:
        if self._peer.server is None:
            return LlamaWheel(path, positions, self._threads, slots)
        return LlamaServer(self._peer.label, self._peer.server, path, positions, self._threads, slots)

    def _benched(self, row: str, case: dict[str, Any]) -> float:
        """Seconds of a token, or of a prompt, by one run of llama-bench."""
        if row in ("prefill", "first-token"):
            work, units = ["-p", str(case["tokens"]), "-n", "0"], 1
        elif self._has_depth:
            work, units = ["-p", "0", "-n", str(case["steps"]), "-d", str(case["context"])], case["steps"]
        else:
            work, units = ["-p", "0", "-n", "0", "-gp", f"{case['context']},{case['steps']}"], case["steps"]
        text = self._run(["-m", self._path, "-t", str(self._threads), "-r", "1", "-o", "json", *work])
        try:
            (one,) = json.loads(text[text.index("[") :])
            return float(one["avg_ns"]) / 1e9 / units
        except (ValueError, KeyError, TypeError) as error:
            what = "its answer is not that of llama-bench"
            raise EngineError(what, kind="peer", thing=self._peer.name, got=text[-200:]) from error

    def _run(self, options: list[str], check: bool = True) -> str:
        done = subprocess.run(
            [str(self._program), *options], capture_output=True, text=True, errors="replace", timeout=WAIT, check=False
        )
        if check and done.returncode:
            what = f"ended with {done.returncode}"
            raise EngineError(what, kind="peer", thing=self._peer.name, hint=done.stderr.strip()[-300:] or None)
        return done.stdout if check else done.stdout + done.stderr


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
