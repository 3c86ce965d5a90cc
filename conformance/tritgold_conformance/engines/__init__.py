"""Engines, as the judge sees engines: ours, programs, servers, and the peers that everybody has."""

WAYS = "xla, reference, transformers, llama.cpp, module:Class, cmd:COMMAND or http://HOST:PORT"
SECONDS = 600.0  # for one run of a program, or one answer of a server, where nobody says otherwise
