"""What pytest must leave alone here."""

# Runs in the peers' environment; collecting it for doctests would import torch.
collect_ignore = ["make_fixtures.py"]
