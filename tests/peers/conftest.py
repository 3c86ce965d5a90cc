"""What pytest must leave alone here."""

# These run in the peers' environment; collecting them for doctests would import torch.
collect_ignore = ["make_fixtures.py", "peer_logits.py"]
