"""llama.cpp in a process of its own, through xllamacpp, as its users have it: KV cache in float16, flash attention as
it chooses by itself. Run as ``python -m tritgold_conformance.bench.worker_llama_cpp THREADS``.

Seconds are llama.cpp's own (``timings``): the prompt without tokenising, tokens after the first.
"""

import importlib
import importlib.metadata
import os
import sys
import time
from pathlib import Path
from typing import Any

from tritgold.errors import EngineError, MissingDependencyError
from tritgold_conformance.bench.json_rpc import serve
from tritgold_conformance.bench.llama_server import SHOWN
from tritgold_conformance.bench.memory import peak_memory
from tritgold_conformance.golden.run import judging_tokens


def main(threads: int) -> None:
    """Serve until standard input ends."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    peer = LlamaCpp(threads)
    serve({name: getattr(peer, name) for name in ("judge", "open", "measure", "facts")})


class LlamaCpp:
    """Handlers of the JSON protocol: open, measure, facts."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._server: Any = None
        self._vocab = 0
        self._options: dict[str, str] = {}

    def judge(self, path: str) -> dict[str, Any]:
        """Whether its log-probabilities are those of the model in the file."""
        judging = importlib.import_module("tritgold_conformance.bench.peer_judge")
        self.open(path, 256, 0)

        def next_tokens(ids: list[int], steps: int) -> Any:
            asked = {"prompt": ids, "max_tokens": steps, "temperature": 0, "ignore_eos": True, "logprobs": SHOWN}
            return judging.shown(self._server.handle_completions(asked))

        passed, text = judging.verdict(next_tokens, Path(path))
        self._server = None
        return {"passed": passed, "text": text}

    def open(self, path: str, capacity: int, vocab: int) -> dict[str, Any]:
        """Load the file. Raises MissingDependencyError without xllamacpp, EngineError where the file is refused."""
        try:
            xl = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise MissingDependencyError(
                f"the peer llama.cpp needs xllamacpp ({error})",
                kind="missing-dependency",
                thing="xllamacpp",
                hint="pip install 'tritgold[peers]'",
            ) from error
        params = xl.CommonParams()
        params.model.path, params.n_parallel = path, 1
        params.n_ctx = capacity + 64  # the token after a prompt that fills the capacity needs a place
        params.warmup, params.verbosity = True, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        types = {int(kind): name for name, kind in vars(xl.ggml_type).items() if name.startswith("GGML_TYPE_")}
        flash = {int(k): name for name, k in vars(xl.llama_flash_attn_type).items() if name.startswith("LLAMA_FLASH")}
        self._options = {
            "type_k": types.get(int(params.cache_type_k), str(params.cache_type_k)).removeprefix("GGML_TYPE_"),
            "type_v": types.get(int(params.cache_type_v), str(params.cache_type_v)).removeprefix("GGML_TYPE_"),
            "flash_attn": flash.get(int(params.flash_attn_type), "").rpartition("_")[2].lower(),
            "batch": str(params.n_batch),
            "ubatch": str(params.n_ubatch),
        }
        begin = time.perf_counter()
        try:
            self._server = xl.Server(params)
        except RuntimeError as error:
            raise EngineError(f"refuses the file: {error}", kind="engine-load", thing="llama.cpp", file=path) from error
        self._vocab = vocab
        return {"load": time.perf_counter() - begin, "options": self._options}

    def measure(self, row: str, case: dict[str, Any]) -> dict[str, Any]:
        """One round. A prompt that is timed is never taken from the cache; one that only stands before tokens is."""
        timed = row in ("prefill", "first-token")
        ids = judging_tokens(case["tokens" if timed else "context"], self._vocab, seed=2)
        steps = 1 if timed else case["steps"] + 1  # the first comes with the prompt, and is not in predicted_ms
        asked = {"prompt": ids, "max_tokens": steps, "temperature": 0, "ignore_eos": True, "cache_prompt": not timed}
        said = self._server.handle_completions(asked)["timings"]
        if said["predicted_n"] != steps or (timed and said["prompt_n"] != len(ids)):
            got = f"{said['prompt_n']} read, {said['predicted_n']} made"
            raise EngineError("did not do what was asked", kind="peer", thing="llama.cpp", got=got, expected=steps)
        seconds = said["prompt_ms"] / 1e3 if timed else said["predicted_ms"] / 1e3 / case["steps"]
        return {"seconds": [seconds], "first": None}

    def facts(self) -> dict[str, Any]:
        """Versions, flags and the peak of memory."""
        versions = {"xllamacpp": importlib.metadata.version("xllamacpp")}
        return {"versions": versions, "flags": self._options, "peak_memory": peak_memory()}


if __name__ == "__main__":
    main(int(sys.argv[1]))
