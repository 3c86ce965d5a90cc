"""Shapes in signatures are checked while the tests run; outside them the annotations cost nothing.

Nothing is kept from one run for the next, and nothing of the user's is read: the cache folders are new ones. Within a
run every process compiles for all others, which halves what the tests of the JAX engine take: a test of compiling, or
of what a number of threads changes, names a folder of its own.
"""

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
from shape_checks import install

# A shell ignores SIGINT for what it starts in the background, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

install(
    [
        "tritgold.kv_cache.token_rows",
        "tritgold.layers",
        "tritgold.sparsity.zero_skipping",
        "tritgold_xla.layers.attention",
        "tritgold_xla.ternary_matmul.bit_linear",
        "tritgold_xla.layers",
    ]
)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also for the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITGOLD_CACHE", "0")
        base = tmp_path_factory.getbasetemp()
        of_the_run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        programs = {
            "jax_compilation_cache_dir": str(of_the_run / "jax-programs"),
            "jax_persistent_cache_min_compile_time_secs": 0.1,
            "jax_persistent_cache_min_entry_size_bytes": -1,
        }
        for name, value in programs.items():
            patch.setenv(name.upper(), str(value))
            if "jax" in sys.modules:  # it has read the environment already
                import_module("jax").config.update(name, value)
        yield
