"""What the tests of training share: compiling is most of their time, so a step of one recipe is compiled once."""

from functools import cache, partial

import pytest

from tritgold_xla.training import loop


@pytest.fixture(autouse=True, scope="session")
def compiled_once():
    """The loop's step function is the same object for the same recipe; jax.jit then knows it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "partial", cache(partial))
        yield
