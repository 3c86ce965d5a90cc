"""The engines that can be judged: tritgold's own, programs, Python classes, servers, transformers and llama.cpp."""
