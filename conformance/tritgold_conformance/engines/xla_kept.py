"""What the JAX engine keeps for later processes: compiled programs, packed weights, and measured choices of kernels."""

import os
import re
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritgold.errors import EngineError, OutputError, TritgoldWarning

if TYPE_CHECKING:
    from tritgold_xla.weights_cache.prepared import KeptWeights

CACHE_GB = "TRITGOLD_CACHE_GB"
# What the speed of a compiled program depends on besides the machine.
SETTINGS = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@cache
def keep_programs() -> None:
    """Keep compiled programs in XDG_CACHE_HOME/tritgold/xla, unless TRITGOLD_CACHE is off.

    If the folder cannot be written, warns once.
    """
    from tritgold_xla.runtime import cache_folder

    if not cache_is_on():
        return
    try:
        cache_folder.keep_programs(cache_folder.cache_folder() / "xla")
    except OutputError as error:
        text = f"compiled programs are not kept: {error}"
        warnings.warn(text, TritgoldWarning, stacklevel=2)


def kept_weights() -> "KeptWeights | None":
    """XDG_CACHE_HOME/tritgold/weights, with at most TRITGOLD_CACHE_GB; None if nothing is to be kept.

    Raises EngineError ``cache-size`` if TRITGOLD_CACHE_GB is not a number of gigabytes.
    """
    from tritgold_xla.runtime.cache_folder import cache_folder
    from tritgold_xla.weights_cache.prepared import KeptWeights

    said = os.environ.get(CACHE_GB, "")
    if said and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", said):
        hint = "0 keeps no prepared weights; TRITGOLD_CACHE=off keeps nothing at all"
        raise EngineError(
            "is not a size", kind="cache-size", thing=CACHE_GB, got=repr(said), expected="gigabytes, 16", hint=hint
        )
    if not cache_is_on() or (said and float(said) == 0):
        return None
    try:
        folder = cache_folder() / "weights"
    except OutputError:  # no home folder: ``keep_programs`` warns about it
        return None
    return KeptWeights(folder, int(float(said) * 1e9)) if said else KeptWeights(folder)


def cache_is_on() -> bool:
    """Whether anything is kept: the environment variable TRITGOLD_CACHE is neither 0 nor off."""
    return os.environ.get("TRITGOLD_CACHE", "").lower() not in ("0", "off")


def tuning_file() -> Path | None:
    """The file with the choices of ``tuned``; None if there is none."""
    from tritgold_xla.ternary_matmul.tune import default_file

    try:
        file = default_file()
    except OutputError:  # no home folder, so no file
        return None
    return file if os.path.lexists(file) else None


def choices_here() -> list[str]:
    """The choices measured on this machine, one line for each matrix and number of tokens; empty without any.

    Raises EngineError ``tuning-file``, MissingDependencyError without JAX.
    """
    file = tuning_file()
    if file is None:
        return []
    from tritgold_xla.ternary_matmul.tune import measured_here

    return [f"{one.out}x{one.in_}, {one.tokens} tokens: {one.formulation}" for one in measured_here(file)]


def tuned(out: int, in_: int) -> list[dict[str, Any]]:
    """Measure the ways to multiply a matrix [out, in_] and store the fastest, for engines that are opened from now on.

    One result for each number of tokens: ``tokens``, ``formulation``, and ``seconds`` of one product by formulation.
    """
    from tritgold_xla.ternary_matmul.tune import tune

    found = tune([(out, in_)])
    return [{"tokens": one.tokens, "formulation": one.formulation, "seconds": one.seconds} for one in found]


def settings() -> dict[str, str]:
    """The environment variables and options of this process on which compiled programs depend.

    The file of choices by its name alone: reports are published, and its folder is the user's.
    """
    import jax

    found = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    programs, tuning = jax.config.jax_compilation_cache_dir, tuning_file()
    found |= {} if programs is None else {"JAX_COMPILATION_CACHE_DIR": str(programs)}
    return found | ({} if tuning is None else {"tuning": tuning.name})
