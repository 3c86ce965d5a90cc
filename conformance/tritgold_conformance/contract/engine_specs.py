"""How engines are named on the command line, and how long they may take."""

ENGINE_SPECS = "xla, reference, transformers, llama.cpp, module:Class, cmd:COMMAND or http://HOST:PORT"
MODES = ("golden", "llama-cpp-q8_k")  # names of tritgold.layers.arithmetic.ARITHMETICS
DEFAULT_TIMEOUT = 600.0  # seconds for one run of a program, or one answer of a server, where nobody says otherwise
