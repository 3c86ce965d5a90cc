"""The helper modules here are imported by their bare names; importlib mode puts no test folder on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# Runs in the peers' environment; collecting it for doctests would import torch.
collect_ignore = ["make_fixtures.py"]
