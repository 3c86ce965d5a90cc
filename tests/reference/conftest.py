"""Makes the helpers importable: under ``--import-mode=importlib`` a test cannot see the files beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("helpers")))
