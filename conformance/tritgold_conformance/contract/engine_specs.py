"""The names of engines on the command line, and the default time limit."""

ENGINE_SPECS = "xla, reference, transformers, llama.cpp, module:Class, cmd:COMMAND or http://HOST:PORT"
MODES = ("golden", "llama-cpp-q8_k")  # names of tritgold.layers.arithmetic.ARITHMETICS
DEFAULT_TIMEOUT = 600.0  # seconds for one run of a program, one answer of a server or one call of a class
