"""The small model of the tests of programs, made once."""

from pathlib import Path

import pytest
from next_token_rows import small_golden

from tritgold_conformance.golden.run import GoldenRun


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenRun:
    """The golden run of ``next_token_rows.SMALL`` over nine tokens."""
    return small_golden(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def model(golden: GoldenRun) -> Path:
    """The folder of its model."""
    return golden.checkpoint.path
