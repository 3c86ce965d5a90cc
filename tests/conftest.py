"""Shapes in signatures are checked while the tests run; outside them the annotations cost nothing.

Nothing is kept from one run for the next, and nothing of the user's is read: the cache folder is a new one.
"""

from collections.abc import Iterator

import pytest
from jaxtyping import install_import_hook

# Before any test imports them: jaxtyping rewrites the modules as they load.
install_import_hook(
    [
        "tritgold.kv_cache.token_rows",
        "tritgold.layers",
        "tritgold.sparsity.zero_skipping",
        "tritgold_xla.attention",
        "tritgold_xla.bit_linear",
        "tritgold_xla.layers",
    ],
    "beartype.beartype",
)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also for the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITGOLD_CACHE", "0")
        yield
