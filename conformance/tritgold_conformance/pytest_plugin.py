"""pytest options of the suite: ``--tritgold-engine`` names the engine to judge."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("tritgold", "judging an engine against the golden model")
    group.addoption("--tritgold-engine", default="xla", help="xla, reference, or module:Class (default: xla)")
    group.addoption("--tritgold-model", default=None, help="checkpoint to judge on (default: the embedded model)")
