"""transformers and torch in a process of their own: ``autobitlinear``, offline, bfloat16.

Run by the Python that TRITGOLD_PEERS_PYTHON names, which need not have tritgold: this file imports nothing of it.
``PYTHON worker_transformers.py THREADS``; the protocol is that of json_rpc.py. torch.compile of the quantisers is off,
as in tests/peers: it was measured to change nothing here, and takes a compiler.
"""

import importlib
import json
import os
import resource
import sys
import time
from typing import Any


class Transformers:
    """Handlers of the JSON protocol: open, measure, facts."""

    def __init__(self, threads: int) -> None:
        torch = importlib.import_module("torch")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._torch, self._vocab, self._context = torch, 0, 0
        self._model: Any = None
        self._past: Any = None

    def open(self, path: str, capacity: int, vocab: int) -> dict[str, Any]:
        """Load a Hugging Face folder in bfloat16; seconds that it took."""
        loader = importlib.import_module("transformers").AutoModelForCausalLM
        begin = time.perf_counter()
        self._model = loader.from_pretrained(path, dtype=self._torch.bfloat16)
        self._model.to(self._torch.bfloat16).eval()
        self._vocab = vocab
        return {"load": time.perf_counter() - begin, "options": {"dtype": "bfloat16", "kv_cache": "bfloat16"}}

    def measure(self, row: str, case: dict[str, int]) -> dict[str, Any]:
        """One round, as the other engines measure it."""
        if row in ("prefill", "first-token"):
            ids = self._ids(case["tokens"])
            begin = time.perf_counter()
            int(self._run(ids, None).argmax())
            seconds = [time.perf_counter() - begin]
            self._past = None  # no tokens are to be decoded after this prompt
            return {"seconds": seconds, "first": None}
        if self._context != case["context"] or self._past is None:
            self._token = int(self._run(self._ids(case["context"]), None).argmax())
            self._context = case["context"]
        seconds = []
        for _ in range(case["steps"]):
            begin = time.perf_counter()
            self._token = int(self._run(self._torch.tensor([[self._token]]), self._past).argmax())
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds, "first": None}

    def facts(self) -> dict[str, Any]:
        """Versions, flags and the peak of memory."""
        versions = {
            "torch": self._torch.__version__,
            "transformers": importlib.import_module("transformers").__version__,
        }
        flags = {"threads": str(self._torch.get_num_threads()), "linear_class": "autobitlinear", "dtype": "bfloat16"}
        return {"versions": versions, "flags": flags, "peak_memory": _peak()}

    def _run(self, ids: Any, past: Any) -> Any:
        """Logits of the last token; what the model now remembers is kept."""
        done = self._model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        self._past = done.past_key_values
        return done.logits[0, -1]

    def _ids(self, count: int) -> Any:
        return self._torch.arange(7, 7 + 31 * count, 31).remainder(self._vocab)[None]


def _peak() -> int:
    """Largest resident size, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(threads: int) -> None:
    """Answer questions until standard input ends."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # before torch loads
    os.environ["HF_HUB_OFFLINE"] = "1"
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            peer = peer or Transformers(threads)
            answer = {"ok": getattr(peer, asked.pop("do"))(**asked)}
        except ImportError as error:
            hint = "TRITGOLD_PEERS_PYTHON names a Python without it; make peers makes one that has all"
            said = {"kind": "missing-dependency", "message": str(error), "thing": "transformers", "hint": hint}
            answer = {"error": {"error": "MissingDependencyError", **said}}
        except Exception as error:
            answer = {"error": {"error": type(error).__name__, "message": str(error)}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
