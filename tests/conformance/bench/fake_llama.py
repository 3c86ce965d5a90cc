"""Stands in for ``llama-server`` and ``llama-bench``: the golden model behind their protocols. Run with their options.

FAKE_LLAMA: ``nothing``: linear layers give nothing; ``old``: log-probabilities as old servers show them; ``dies``.
A program whose name has ``refusing`` streams nothing.
"""

import json
import os
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward
from tritgold_conformance.bench.precheck import quietly_opened

WAY = os.environ.get("FAKE_LLAMA", "")
OPTIONS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
SHOWN = 20
if "--port" in OPTIONS:
    Path("llama.log").touch()  # ik_llama.cpp's server writes one into the folder that it is started in


def nothing(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    return np.zeros((len(codes), len(trits)), np.int32)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer({"status": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            self.stream(asked["max_tokens"])
            return
        ids, steps = asked["prompt"], []
        for _ in range(asked["n_predict"]):
            if asked.get("n_probs"):
                steps.append(self.step(ids))
            ids = [*ids, 3]
        made = asked["n_predict"]
        timings = {"prompt_n": len(asked["prompt"]), "prompt_ms": 2.0, "predicted_n": made, "predicted_ms": 3.0 * made}
        self.answer({"content": "", "completion_probabilities": steps, "timings": timings})

    def stream(self, tokens: int) -> None:
        """So many tokens as events, the last with the usage."""
        if "refusing" in Path(sys.argv[0]).name:
            self.send_response(503)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        for n in range(tokens):
            usage = {"completion_tokens": tokens} if n == tokens - 1 else None
            self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")

    def step(self, ids: list[int]) -> dict[str, Any]:
        arithmetic = replace(GOLDEN_ARITHMETIC, accumulate=nothing) if WAY == "nothing" else GOLDEN_ARITHMETIC
        row = forward(ids, MODEL.weights, MODEL.config, last_only=True, arithmetic=arithmetic)[0].astype(np.float64)
        shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        likely = [int(n) for n in np.argsort(-shares)[:SHOWN]]
        if WAY == "old":
            return {"content": "t3", "probs": [{"tok_str": f" t{n}", "prob": shares[n]} for n in likely]}
        found = [{"id": n, "token": f"t{n}", "logprob": float(np.log(shares[n]))} for n in likely]
        return {"id": 3, "token": "t3", "top_logprobs": found}

    def answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    if "--version" in sys.argv:
        sys.exit("version: 1 (fake)")
    if WAY == "dies":
        sys.exit("unknown model architecture")
    if "--help" in sys.argv:
        print("  -gp <pp,tg>")
    elif "bench" in Path(sys.argv[0]).name:
        print(json.dumps([{"avg_ns": 5e6, "n_prompt": int(OPTIONS["-p"])}]))
    else:
        MODEL = quietly_opened(Path(OPTIONS["-m"]))
        HTTPServer(("127.0.0.1", int(OPTIONS["--port"])), Handler).serve_forever()
