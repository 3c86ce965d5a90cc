"""What several tests of the command judge and read."""

from pathlib import Path

import pytest

from tritgold.golden.seeded import Shape, write_seeded_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a seeded model of two small layers."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_seeded_model(folder, Shape(hidden=64, inter=96, layers=2, heads=2, kv_heads=1, context=32))
    return folder
