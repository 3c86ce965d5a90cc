"""What pytest must leave alone here."""

# These run in the peers' environment; collecting them for doctests would import torch, xllamacpp or tritium.
collect_ignore = [
    "llama_cpp_logits.py",
    "llama_cpp_quantize.py",
    "llama_cpp_server.py",
    "llama_cpp_tokens.py",
    "make_fixtures.py",
    "peer_logits.py",
    "tritium_greedy.py",
]
