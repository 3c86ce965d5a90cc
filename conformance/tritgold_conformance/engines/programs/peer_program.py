"""transformers and llama.cpp (xllamacpp) as programs of docs/command-protocol.md; runs in the peers' environment.

    python peer_program.py transformers:DTYPE|llama.cpp:float32|llama.cpp:defaults INPUTS OUTPUTS

Both open the checkpoint that config.json names, with their own readers; DTYPE is torch's name of a dtype.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

PROTOCOL = "tritgold.command/1"
MODULES = {"transformers": "transformers_peer", "llama.cpp": "llama_cpp_peer"}  # files next to this one


def main(peer: str, inputs: Path, outputs: Path) -> None:
    """Answer the requests of one run."""
    config, requests = (json.loads((inputs / name).read_text()) for name in ("config.json", "requests.json"))
    peer, _, precision = peer.partition(":")
    arrays, facts = importlib.import_module(MODULES[peer]).answers(config["checkpoint"], requests, precision)
    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, outputs / "outputs.safetensors")
    header = {"protocol": PROTOCOL, "name": peer, **facts}
    (outputs / "answer.json").write_text(json.dumps(header))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
