"""The engine's cases, made once."""

import pytest


@pytest.fixture(scope="session")
def cases():
    """By name a small model with its engine, golden trace and the engine's own trace; each made when first asked."""
    from engine_cases import Cases

    return Cases()
