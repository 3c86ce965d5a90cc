"""llama.cpp's server of 2024 as a program of docs/command-protocol.md.

python native_server_program.py PORT INPUTS OUTPUTS

Its completions are in a form of its own: probabilities by the text of a token, so the model needs the "plain"
vocabulary, in which token 7 is "t7". Every sampler is off: the probabilities are the softmax of the logits.
"""

import json
import math
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from answering import asked
from safetensors.numpy import save_file

STEPS = 16  # that are timed after the text


def main(port: str, inputs: Path, outputs: Path) -> None:
    """Answer the requests of one run."""
    config, requests, _ = asked(inputs)
    vocab = config["vocab"]

    def complete(tokens: list[int], count: int, **more: Any) -> dict[str, Any]:
        body = {"prompt": tokens, "n_predict": count, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1, **more}
        data = json.dumps({"cache_prompt": False, "ignore_eos": False, "seed": 1, **body}).encode()
        at = urllib.request.Request(f"http://127.0.0.1:{port}/completion", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(at) as answer:
            return dict(json.load(answer))

    arrays, behaviours = {}, {}
    header: dict[str, Any] = {"protocol": "tritgold.command/1", "name": "llama.cpp's server of 2024"}
    if tokens := (requests.get("text") or {}).get("tokens"):
        shown = np.full((len(tokens), vocab), -np.inf)
        for n in range(len(tokens)):
            answer = complete(tokens[: n + 1], 1, temperature=1, n_probs=vocab)
            for one in answer["completion_probabilities"][0]["probs"]:
                if one["prob"] > 0:
                    shown[n, int(one["tok_str"].strip()[1:])] = math.log(one["prob"])
        timings = complete(tokens, STEPS, temperature=0, ignore_eos=True)["timings"]
        header["seconds"] = {
            "prefill": timings["prompt_ms"] / 1000,
            "step": timings["predicted_per_token_ms"] / 1000,
        }
        arrays["text/token"] = shown.argmax(1)
        arrays["text/ids"] = np.where(np.isfinite(shown), np.arange(vocab), -1)
        arrays["text/logprobs"] = np.where(np.isfinite(shown), shown, 0)
    for one in requests.get("behaviours") or []:
        if one["method"] == "generate" and not one["arguments"][2]:
            prompt, count, _ = one["arguments"]
            text = complete(prompt, count, temperature=0)["content"]
            behaviours[one["id"]] = [int(found) for found in re.findall(r"t(\d+)", text)]
    save_file(arrays, outputs / "outputs.safetensors")
    (outputs / "answer.json").write_text(json.dumps(header | {"behaviours": behaviours}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
