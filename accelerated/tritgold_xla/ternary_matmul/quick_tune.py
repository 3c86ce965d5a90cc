"""The short form of ``tune``: at the first start on a machine, the few choices that differ between processors.

It looks at the ways that are the fastest somewhere, on the matrices of the model, the one with the most weights first,
and stops after a second or two, compiling included. What it has not come to follows the matrix that is nearest in
size, else the rule. It takes a way over the rule's only where that was faster in every round: on a machine that is
busy with other things the rule stays. Whatever it takes, the integers are the same; it checks that too.
"""

import time
import warnings
from collections import Counter
from collections.abc import Iterator
from math import log
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, OutputError, TritgoldWarning
from tritgold.weights import LINEARS
from tritgold_xla.runtime.cache_folder import require_folder
from tritgold_xla.runtime.chunks import CHUNKS
from tritgold_xla.runtime.flags import cpu_device
from tritgold_xla.ternary_matmul import tune
from tritgold_xla.ternary_matmul.choose import Choices, Measured, choose, library_dots
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes, words

SECONDS = 2.0
Tuning = Path | Literal["auto"] | None

_ROUNDS = 4
# By number of tokens, the ways that are the fastest on some machine: with XLA's library of int8 kernels, and without.
_WITH_LIBRARY = {1: ("select", "bit-serial"), 8: ("select", "int8-dot"), 32: ("select", "int8-dot")}
_WITHOUT = {1: ("select", "bit-serial", "float-dot"), 8: ("select", "float-dot"), 32: ("select", "float-dot")}


def measured_for(config: ModelConfig, tuning: Tuning) -> tuple[Measured, ...]:
    """What is known of this machine for a model: from a file, or measured now where nothing is known yet.

    tuning: a file; "auto": ``tune.default_file``, after ``quick_tune`` for the matrices that it does not know; None:
    nothing is known. Raises EngineError ``tuning-file`` for a file that ``tune`` has not written. Where
    the file cannot be written a TritgoldWarning says so, and nothing is measured.
    """
    if tuning is None:
        return ()
    if tuning != "auto":
        return tune.measured_here(tuning)
    try:
        file = tune.default_file()
        known = tune.measured_here(file) if file.exists() else ()
        if missing := [shape for shape in shapes_of(config) if shape not in {(one.out, one.in_) for one in known}]:
            quick_tune(missing, file)
            known = tune.measured_here(file)
    except OutputError as error:
        warnings.warn(f"the fastest ways to multiply are not measured: {error}", TritgoldWarning, stacklevel=4)
        return ()
    return known


def choices_for(config: ModelConfig, formulation: str | None, tuning: Tuning) -> Choices:
    """One formulation everywhere, or what is known of this machine. A file that is given is read in any case.

    Raises EngineError for an unknown formulation (``formulation``), and what ``measured_for`` raises.
    """
    if formulation is not None and formulation not in FORMULATIONS:
        raise EngineError(
            "no such formulation of the ternary product",
            kind="formulation",
            got=repr(formulation),
            expected=", ".join(FORMULATIONS),
        )
    return Choices(formulation, measured_for(config, tuning) if tuning != "auto" or formulation is None else ())


def shapes_of(config: ModelConfig) -> list[tuple[int, int]]:
    """(out, in) of the model's matrices, that with the most weights in a layer first."""
    counts = Counter(config.linear_shape(name) for name in LINEARS)
    return sorted(counts, key=lambda shape: -counts[shape] * shape[0] * shape[1])


def quick_tune(shapes: list[tuple[int, int]], path: Path, seconds: float = SECONDS) -> list[tune.Choice]:
    """Measure for about so many seconds, the first matrix with one token in any case; keep the choices in the file.

    Returns a choice for each matrix and each of CHUNKS: without ``seconds`` where there was no time for it.

    Raises OutputError where the file cannot be written, before anything is measured; EngineError ``tuning-differs`` as
    ``tune.tune``.
    """
    cpu_device()
    require_folder(path.parent)
    end, found = time.perf_counter() + seconds, list[tune.Choice]()
    for shape, tokens, ways in _tasks(shapes):
        if found and time.perf_counter() > end:
            break
        found.append(_choice(shape, tokens, ways))
    found += _others(found, shapes)
    tune.keep(path, found)
    return found


def _tasks(shapes: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int, tuple[str, ...]]]:
    by_tokens = _WITH_LIBRARY if library_dots() else _WITHOUT
    return ((shape, tokens, ways) for shape in shapes for tokens, ways in by_tokens.items())


def _choice(shape: tuple[int, int], tokens: int, names: tuple[str, ...]) -> tune.Choice:
    """The rule's way, or the fastest of those that beat it in every round."""
    (out, in_), rule = shape, choose(tokens)
    ways = [FORMULATIONS[name] for name in dict.fromkeys((rule, *names))]
    runs = dict(tune.compiled(ways, *_problem(out, in_, tokens)))
    rounds = [{name: tune.seconds_of(name, run) for name, run in runs.items()} for _ in range(_ROUNDS)]
    medians = {name: float(np.median([each[name] for each in rounds])) for name in runs}
    better = [name for name in runs if all(each[name] < each[rule] for each in rounds)]
    fastest = min(better, key=medians.__getitem__, default=rule)
    return tune.Choice(out, in_, tokens, fastest, {name: taken / tune.MATRICES for name, taken in medians.items()})


def _problem(out: int, in_: int, tokens: int) -> tuple[jax.Array, Planes]:
    """Random codes, and random planes of some matrices; made of words, not packed from trits."""
    rng = np.random.default_rng(159)
    bits = rng.integers(0, 1 << 32, (tune.MATRICES, 2, words(in_), out), dtype=np.uint32)
    bits[:, 1] &= bits[:, 0]  # what is -1 is not zero
    counts = np.array([byte.bit_count() for byte in range(256)], np.int32)
    negatives = counts[bits[:, 1].view(np.uint8)].reshape(tune.MATRICES, words(in_), out, 4).sum(axis=(1, 3))
    codes = rng.integers(-127, 128, (tune.MATRICES, tokens, in_), dtype=np.int8)
    return jax.numpy.asarray(codes), Planes(jax.numpy.asarray(bits), jax.numpy.asarray(negatives.astype(np.int32)))


def _others(found: list[tune.Choice], shapes: list[tuple[int, int]]) -> list[tune.Choice]:
    """What was not measured: as the matrix that is nearest in size, else as the rule.

    Without them, a number of tokens that was not come to would follow a smaller one.
    """
    known = {(one.out, one.in_, one.tokens) for one in found}
    missing = [(shape, tokens) for shape in shapes for tokens in CHUNKS if (*shape, tokens) not in known]

    def way(shape: tuple[int, int], tokens: int) -> str:
        alike = [one for one in found if one.tokens == tokens]
        nearest = min(alike, key=lambda one: abs(log(one.out * one.in_) - log(shape[0] * shape[1])), default=None)
        return choose(tokens) if nearest is None else nearest.formulation

    return [tune.Choice(*shape, tokens, way(shape, tokens), {}) for shape, tokens in missing]
