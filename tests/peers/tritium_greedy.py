"""Greedy tokens of a GGUF file by pytritium; runs in the peers' environment.

    python tests/peers/tritium_greedy.py OUT.json IDS NEW_TOKENS MODEL.gguf

IDS: token ids with commas. OUT: {"generated": [...], "next": [...]}: NEW_TOKENS tokens after IDS, and the one token
after each prefix of IDS, which judges every position. No end-of-sequence token ends it. Exit code 3 where pytritium
refuses the file.
"""

import json
import os
import sys
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"  # before tritium loads

import tritium

NEVER = 2**31 - 1  # as the end-of-sequence token: no vocabulary reaches it


def main(out: str, tokens: str, new_tokens: str, path: str) -> int:
    ids = [int(token) for token in tokens.split(",")]
    try:
        model = tritium.Model.load(path)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 3
    after = [model.generate(ids[: n + 1], 1, eos=NEVER)[0] for n in range(len(ids))]
    generated = model.generate(ids, int(new_tokens), eos=NEVER)
    Path(out).write_text(json.dumps({"generated": generated, "next": after}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
