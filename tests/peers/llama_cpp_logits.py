"""Log-probabilities and greedy tokens of a GGUF file by llama.cpp (xllamacpp); runs in the peers' environment.

    python tests/peers/llama_cpp_logits.py OUT.npz IDS NEW_TOKENS MODEL.gguf

IDS: token ids with commas. OUT: logprobs float64 [tokens, vocab], of the next token at each of IDS; generated int64, up
to NEW_TOKENS of them. Exit code 3 where llama.cpp refuses the file. Opened as ``--engine llama.cpp`` opens it.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance/tritgold_conformance/engines/programs"))
from llama_cpp_peer import complete, logprobs_after, open_server


def main(out: str, tokens: str, new_tokens: str, model: str) -> int:
    ids = [int(token) for token in tokens.split(",")]
    try:
        server = open_server(model)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 3
    # Each prefix finds the one before it in the cache: the ids are read once, one at a time.
    rows = [logprobs_after(server, ids[: n + 1]) for n in range(len(ids))]
    generated = complete(server, ids, max_tokens=int(new_tokens), logprobs=1)
    np.savez(out, logprobs=np.stack(rows), generated=[token["id"] for token in generated])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
