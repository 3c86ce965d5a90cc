"""llama.cpp's HTTP server on a GGUF file (xllamacpp), on this machine; runs in the peers' environment.

    python tests/peers/llama_cpp_server.py MODEL.gguf [--defaults] [--port N [--slots N] [--context N]]

Prints its address. Opened as ``--engine llama.cpp`` opens it, at a free port, until its standard input ends.
--defaults: with the KV cache and the attention that llama.cpp takes by itself. --port: until it is ended by a signal,
with so many texts in a pass, which share the context.
"""

import argparse
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance/tritgold_conformance/engines/programs"))
from llama_cpp_peer import open_server

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--defaults", action="store_true")
    for name, value in (("--port", 0), ("--slots", 1), ("--context", 512)):
        parser.add_argument(name, type=int, default=value)
    given = parser.parse_args()
    server = open_server(given.model, given.context, given.defaults, given.slots, given.port)
    print(server.listening_address, flush=True)
    if given.port:
        signal.pause()
    sys.stdin.read()
