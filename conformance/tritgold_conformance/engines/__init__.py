"""Engines, as the judge sees engines: ours, programs, servers, and the peers that everybody has."""

WAYS = "xla, reference, transformers, llama.cpp, module:Class, cmd:COMMAND or http://HOST:PORT"
MODES = ("golden", "llama-cpp-q8_k")  # names of tritgold.layers.arithmetic.ARITHMETICS
SECONDS = 600.0  # for one run of a program, or one answer of a server, where nobody says otherwise
