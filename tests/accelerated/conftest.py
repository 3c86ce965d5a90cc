"""Shapes in the engine's signatures are checked while its tests run; helpers are made importable."""

import sys
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

sys.path.insert(0, str(Path(__file__).with_name("helpers")))
# Before any test imports them: jaxtyping rewrites the modules as they load.
install_import_hook(
    ["tritgold_xla.attention", "tritgold_xla.bit_linear", "tritgold_xla.layers", "tritgold_xla.packed"],
    "beartype.beartype",
)


@pytest.fixture(scope="session")
def cases():
    """By name a small model with its engine, golden trace and the engine's own trace; each made when first asked."""
    from small_models import Cases

    return Cases()
