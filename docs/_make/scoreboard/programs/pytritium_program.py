"""pytritium as a program of docs/command-protocol.md: greedy tokens, which is all that it shows.

python pytritium_program.py INPUTS OUTPUTS

Runs in an environment with pytritium, safetensors and numpy. A token is the answer to ``text``, several to
``generate``, except those with options.
"""

import json
import os
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"  # before tritium loads
NEVER = 2**31 - 1  # as the end-of-sequence token: not an id of any vocabulary
RUNS, STEPS = 3, 16


def main(inputs: Path, outputs: Path) -> None:
    """Answer the requests of one run."""
    import numpy as np
    import tritium
    from safetensors.numpy import save_file

    config, requests = (json.loads((inputs / name).read_text()) for name in ("config.json", "requests.json"))
    model = tritium.Model.load(config["checkpoint"])
    header: dict[str, Any] = {"protocol": "tritgold.command/1", "name": "pytritium", "behaviours": {}}
    header["versions"] = {"pytritium": version("pytritium")}
    arrays: dict[str, Any] = {}
    if tokens := (requests.get("text") or {}).get("tokens"):
        found = [model.generate(tokens[: n + 1], 1, eos=NEVER)[0] for n in range(len(tokens))]
        arrays["text/token"] = np.array(found, np.int64)
        header["seconds"] = seconds(model, tokens)
    for asked in requests.get("behaviours") or []:
        if asked["method"] == "generate":
            prompt, count, options = asked["arguments"]
            if not options:
                written, ends = model.generate(prompt, count, eos=NEVER), config.get("eos") or []
                last = next((n for n, token in enumerate(written) if token in ends), len(written) - 1)
                header["behaviours"][asked["id"]] = written[: last + 1]
    save_file(arrays, outputs / "outputs.safetensors")
    (outputs / "answer.json").write_text(json.dumps(header))


def seconds(model: Any, tokens: list[int]) -> dict[str, float]:
    """Medians by its own calls: the prompt with one token, and each of STEPS more."""

    def timed(count: int) -> float:
        began = time.perf_counter()
        model.generate(tokens, count, eos=NEVER)
        return time.perf_counter() - began

    one, more = (statistics.median(timed(count) for _ in range(RUNS)) for count in (1, 1 + STEPS))
    return {"prefill": one} | ({"step": (more - one) / STEPS} if more > one else {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
