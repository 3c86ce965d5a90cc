"""The cache folder of the engine, and compiled programs in it, so that the next process need not compile them."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from tritgold.errors import OutputError
from tritgold_xla.runtime.flags import threads


def keep_programs(folder: Path) -> bool:
    """Cache compiled programs in a folder (created if missing), so that the next process need not compile them.

    This is a setting of the whole process: JAX has one such folder for all programs. If the user has already set one
    (JAX_COMPILATION_CACHE_DIR or jax.config), nothing is changed and the result is False. There is a subfolder for each
    number of threads, which JAX does not distinguish: a program compiled for one thread would use only one. Nothing is
    ever deleted. Raises OutputError if the folder cannot be written; then nothing is changed.
    """
    if jax.config.jax_compilation_cache_dir is not None:
        return False
    own = folder / f"threads-{threads()}"
    require_folder(own)
    set_option: Callable[[str, Any], None] = jax.config.update
    set_option("jax_compilation_cache_dir", str(own))
    for name, value in _KEPT.items():
        if name.upper() not in os.environ:
            set_option(name, value)
    compilation_cache.reset_cache()  # JAX reads the setting only once, at the first program
    return True


# Cache programs that take 0.1 s or more to compile, of any size: JAX's limit of 1 s would exclude most of ours.
_KEPT: dict[str, float] = {
    "jax_persistent_cache_min_compile_time_secs": 0.1,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def cache_folder() -> Path:
    """XDG_CACHE_HOME/tritgold, else ~/.cache/tritgold. Raises OutputError ``no-folder`` if the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tritgold"
    except RuntimeError as error:
        hint = "set XDG_CACHE_HOME to a folder that can be written"
        raise OutputError("the user has no home folder", kind="no-folder", thing="cache", hint=hint) from error


def require_folder(folder: Path) -> None:
    """Create a folder if missing, and test it with a temporary file. Raises OutputError ``unwritable``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", kind="unwritable", file=folder) from error
