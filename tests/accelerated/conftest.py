"""Shapes in the engine's signatures are checked while its tests run."""

import pytest
from jaxtyping import install_import_hook

# Before any test imports them: jaxtyping rewrites the modules as they load.
install_import_hook(
    ["tritgold_xla.attention", "tritgold_xla.bit_linear", "tritgold_xla.layers", "tritgold_xla.packed"],
    "beartype.beartype",
)


@pytest.fixture(scope="session")
def cases():
    """By name a small model with its engine, golden trace and the engine's own trace; each made when first asked."""
    from engine_cases import Cases

    return Cases()
