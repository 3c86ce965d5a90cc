"""docs/command-protocol.md for the programs beside this one that show logits; it runs in an engine's environment."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Read = Callable[[list[int]], np.ndarray]  # the next tokens of a session -> logits [tokens, vocab]


def asked(inputs: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    """config.json, requests.json, and the arrays of model.safetensors."""
    config, requests = (json.loads((inputs / name).read_text()) for name in ("config.json", "requests.json"))
    return config, requests, load_file(inputs / "model.safetensors")


def answer(
    outputs: Path, requests: dict[str, Any], begin: Callable[[], Read], name: str, versions: dict[str, str]
) -> None:
    """Answer every session. begin: forgets all tokens, and returns the function that reads the next ones."""
    arrays: dict[str, np.ndarray] = {}
    header: dict[str, Any] = {"protocol": "tritgold.command/1", "name": name, "versions": versions, "raised": {}}
    seconds: dict[str, float] = {}
    for session in requests.get("logits") or []:
        tokens, chunks, rows, times = session["tokens"], session["chunks"], [], []
        read, start = begin(), 0
        try:
            for count in chunks:
                began = time.perf_counter()
                rows.append(read(tokens[start : start + count]))
                times.append(time.perf_counter() - began)
                start += count
            arrays[f"logits/{session['id']}"] = np.concatenate(rows)
        except RuntimeError as error:
            header["raised"][f"logits/{session['id']}"] = str(error)
        if len(chunks) == 1 and chunks[0] > 8:
            seconds.setdefault("prefill", times[0])
        elif len(chunks) > 8 and set(chunks) == {1}:
            seconds.setdefault("step", statistics.median(times))
    if "prefill" in seconds:
        header["seconds"] = seconds
    save_file(arrays, outputs / "outputs.safetensors")
    (outputs / "answer.json").write_text(json.dumps(header))
