"""llama.cpp's HTTP server on a GGUF file (xllamacpp), on a free port of this machine; runs in the peers' environment.

    python tests/peers/llama_cpp_server.py MODEL.gguf [--defaults]

Prints its address, and ends when its standard input does. Opened as ``--engine llama.cpp`` opens it; --defaults: with
the KV cache and the attention that llama.cpp takes by itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance/tritgold_conformance/engines/programs"))
from llama_cpp_peer import open_server

if __name__ == "__main__":
    server = open_server(sys.argv[1], defaults="--defaults" in sys.argv)
    print(server.listening_address, flush=True)
    sys.stdin.read()
