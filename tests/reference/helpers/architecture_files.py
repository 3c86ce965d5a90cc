"""Fixtures of transformers' own making (tests/peers), edited and converted."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import TritgoldWarning

FIXTURES = Path(__file__).parents[2] / "peers" / "fixtures"


def converted(model: Checkpoint, path: Path, to: str, **options: Any) -> Checkpoint:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)
        convert(model, path, to, Options(**options))
        return open_checkpoint(path)


def edited(case: str, folder: Path, keys: dict[str, Any]) -> Path:
    """The fixture with other keys in its config.json; None takes one out. Other architectures have no model_type."""
    shutil.copytree(FIXTURES / case / "checkpoint", folder)
    typed = {"model_type": None} if "architectures" in keys else {}
    config = json.loads((folder / "config.json").read_text()) | typed | keys
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder
