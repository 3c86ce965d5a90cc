"""A built ``llama-server`` or ``llama-bench`` beside the engine: judged by its server, timed by its own clock.

``python -m tritgold_conformance.bench.worker_llama_program THREADS NAME=PROGRAM``. The program inherits the processors
that this process holds itself to.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tritgold.errors import EngineError
from tritgold_conformance.bench.json_rpc import serve
from tritgold_conformance.bench.llama_server import WAIT, LlamaServer
from tritgold_conformance.bench.peer_names import Peer, peer
from tritgold_conformance.golden.run import judging_tokens

SPARE = 64  # positions: the token after a prompt that fills the capacity needs a place


def main(threads: int, text: str) -> None:
    """Serve until standard input ends."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    one = LlamaProgram(peer(text), threads)
    try:
        serve({name: getattr(one, name) for name in ("judge", "open", "measure", "facts")})
    finally:
        one.close()


class LlamaProgram:
    """Handlers of the JSON protocol."""

    def __init__(self, named: Peer, threads: int) -> None:
        self._peer, self._threads = named, threads
        self._server: LlamaServer | None = None
        self._path, self._vocab, self._peak = "", 0, None
        self._bench_options: list[str] = []

    def judge(self, path: str) -> dict[str, Any]:
        """Whether its log-probabilities are those of the model in the file."""
        judging = importlib.import_module("tritgold_conformance.bench.peer_judge")
        server = self._started(path, 256)
        try:
            passed, text = judging.verdict(server.next_tokens, Path(path))
        finally:
            server.close()
        return {"passed": passed, "text": text}

    def open(self, path: str, capacity: int, vocab: int) -> dict[str, Any]:
        """Load the file. Raises EngineError where it is refused."""
        self._path, self._vocab = path, vocab
        options = {"program": self._program.name, "head": self._peer.head, "file": Path(path).name}
        if self._peer.benches:
            shows_depth = "--n-depth" in self._run(["--help"], check=False)
            self._bench_options = ["-d"] if shows_depth else ["-gp"]
            return {"load": None, "options": options}
        self._server = self._started(path, capacity + SPARE)
        return {"load": self._server.load, "options": options}

    def measure(self, row: str, case: dict[str, Any]) -> dict[str, Any]:
        """One round. A prompt that is timed is never taken from the cache; one that only stands before tokens is."""
        if self._peer.benches:
            return {"seconds": [self._benched(row, case)], "first": None}
        assert self._server is not None
        timed = row in ("prefill", "first-token")
        ids = judging_tokens(case["tokens" if timed else "context"], self._vocab, seed=2)
        steps = 1 if timed else case["steps"] + 1  # the first comes with the prompt, and is not in predicted_ms
        said = self._server.complete(ids, steps, cache_prompt=not timed)["timings"]
        if said["predicted_n"] != steps or (timed and said["prompt_n"] != len(ids)):
            got = f"{said['prompt_n']} read, {said['predicted_n']} made"
            raise EngineError("did not do what was asked", kind="peer", thing=self._peer.name, got=got, expected=steps)
        seconds = said["prompt_ms"] / 1e3 if timed else said["predicted_ms"] / 1e3 / case["steps"]
        return {"seconds": [seconds], "first": None}

    def facts(self) -> dict[str, Any]:
        """What is known of it."""
        first = self._run(["--version"], check=False).strip().splitlines()[:1]
        peak = None if self._server is None else self._server.peak_memory()
        return {"versions": {self._peer.name: first[0][:80]} if first else {}, "flags": {}, "peak_memory": peak}

    def close(self) -> None:
        """End its server."""
        if self._server is not None:
            self._server.close()

    @property
    def _program(self) -> Path:
        assert self._peer.program is not None
        return self._peer.program

    def _started(self, path: str, positions: int) -> LlamaServer:
        assert self._peer.server is not None
        return LlamaServer(self._peer.label, self._peer.server, path, positions, self._threads)

    def _benched(self, row: str, case: dict[str, Any]) -> float:
        """Seconds of a token, or of a prompt, by one run of llama-bench."""
        if row in ("prefill", "first-token"):
            asked, units = ["-p", str(case["tokens"]), "-n", "0"], 1
        elif self._bench_options == ["-d"]:
            asked, units = ["-p", "0", "-n", str(case["steps"]), "-d", str(case["context"])], case["steps"]
        else:
            asked, units = ["-p", "0", "-n", "0", "-gp", f"{case['context']},{case['steps']}"], case["steps"]
        options = ["-m", self._path, "-t", str(self._threads), "-r", "1", "-o", "json", *asked]
        text = self._run(options)
        try:
            (one,) = json.loads(text[text.index("[") :])
            return float(one["avg_ns"]) / 1e9 / units
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                "its answer is not that of llama-bench", kind="peer", thing=self._peer.name, got=text[-200:]
            ) from error

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
