"""Token ids of texts by llama.cpp (xllamacpp), out of a GGUF file's own tokenizer; runs in the peers' environment.

    python tests/peers/llama_cpp_tokens.py MODEL.gguf < TEXTS.json > IDS.json

TEXTS: a JSON list of texts. IDS: a list of lists, special tokens found and added as the file says.
"""

import json
import sys
import urllib.request

import xllamacpp as xl


def main(model: str) -> int:
    params = xl.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity, params.port = 64, 1, False, 0, 0
    params.cpuparams.n_threads = 1
    server = xl.Server(params)  # on a free port of this machine, for as long as the program runs
    print(json.dumps([tokenize(server.listening_address, text) for text in json.load(sys.stdin)]))
    return 0


def tokenize(address: str, text: str) -> list[int]:
    body = json.dumps({"content": text, "add_special": True, "parse_special": True}).encode()
    request = urllib.request.Request(f"{address}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        ids: list[int] = json.load(answer)["tokens"]
    return ids


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
