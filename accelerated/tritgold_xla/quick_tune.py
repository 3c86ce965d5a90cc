"""The short form of ``tune``: at the first start on a machine, the few choices that differ between processors.

It looks at the ways that are the fastest somewhere, on the matrices of the model, the one with the most weights first,
and stops after a second or two, compiling included. What it has not come to follows the matrix that is nearest in
size, else the rule. Then it looks at whether the head is faster as the left or as the right operand of its product. It
takes a way over the rule's only where that was faster in every round: on a machine that is busy with other things the
rule stays. Whatever it takes, the bits are the same; it checks that too. Forms of the head and of attention that give
other bits are not chosen by time (docs/decisions/0018).
"""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import log
from pathlib import Path
from typing import Literal

import jax
import numpy as np
from jax import lax

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, OutputError, TritgoldWarning
from tritgold.weights import LINEARS
from tritgold_xla.layers import lm_head
from tritgold_xla.runtime.cache_folder import require_folder
from tritgold_xla.runtime.chunks import CHUNKS
from tritgold_xla.runtime.flags import cpu_device, jit
from tritgold_xla.ternary_matmul import tune
from tritgold_xla.ternary_matmul.choose import HEAD_SIDES, Choices, Measured, choose, choose_head, library_dots
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes, words

SECONDS = 2.0
Tuning = Path | Literal["auto"] | None

_ROUNDS = 4
# By number of tokens, the ways that are the fastest on some machine: with XLA's library of int8 kernels, and without.
# First the number where they are closest.
_WITH_LIBRARY = {8: ("select", "int8-dot"), 1: ("select", "bit-serial"), 32: ("select", "int8-dot")}
_WITHOUT = {8: ("select", "float-dot"), 1: ("select", "bit-serial", "float-dot"), 32: ("select", "float-dot")}
# Tokens for which the head is measured, and how much of it: 21 MB of 2,560 columns, more than a core's cache.
_HEAD_TOKENS, _HEAD_ROWS = (8, 32), 4096


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
        has = {(one.out, one.in_) for one in known if one.formulation not in HEAD_SIDES}
        if missing := [shape for shape in shapes_of(config) if shape not in has]:
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


def with_head(choices: Choices, head: tuple[int, int] | None, tuning: Tuning) -> Choices:
    """The choices with those of a bfloat16 head (vocab, hidden), which "auto" measures where nothing is known of it.

    head: None for one that is not measured: of float32, or in parts on several devices.
    """
    known = {(one.out, one.in_) for one in choices.measured if one.formulation in HEAD_SIDES}
    if head is None or head in known or tuning != "auto" or choices.everywhere is not None or not library_dots():
        return choices
    try:
        found = quick_tune_head(head, tune.default_file())
    except OutputError:  # ``measured_for`` has said so
        return choices
    return choices._replace(measured=(*choices.measured, *map(tune.measured, found)))


def shapes_of(config: ModelConfig) -> list[tuple[int, int]]:
    """(out, in) of the model's matrices, that with the most weights in a layer first."""
    counts = Counter(config.linear_shape(name) for name in LINEARS)
    return sorted(counts, key=lambda shape: -counts[shape] * shape[0] * shape[1])


def quick_tune(shapes: list[tuple[int, int]], path: Path, seconds: float = SECONDS) -> list[tune.Choice]:
    """Measure for about so many seconds, the first matrix with 8 tokens in any case; keep the choices in the file.

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


def quick_tune_head(head: tuple[int, int], path: Path) -> list[tune.Choice]:
    """Measure a bfloat16 head (vocab, hidden) as left and as right operand, on some of its rows; keep the choices.

    Takes less than a second. Returns a choice for 8 and for 32 tokens, and those that follow from them and from the
    rule for 1, 16 and 128. Raises OutputError where the file cannot be written, before anything is measured.
    """
    cpu_device()
    require_folder(path.parent)
    few, many = (_side(head, tokens) for tokens in _HEAD_TOKENS)
    # One token never pays for the repacking of a right operand; up to 16 the rule is that of 8.
    others = {1: choose_head(1), 16: few.formulation, 128: choose_head(128)}
    found = [few, many, *(tune.Choice(*head, tokens, side, {}) for tokens, side in others.items())]
    tune.keep(path, found)
    return found


def _tasks(shapes: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int, tuple[str, ...]]]:
    by_tokens = _WITH_LIBRARY if library_dots() else _WITHOUT
    return ((shape, tokens, ways) for shape in shapes for tokens, ways in by_tokens.items())


def _choice(shape: tuple[int, int], tokens: int, names: tuple[str, ...]) -> tune.Choice:
    """The rule's way, or the fastest of those that beat it in every round."""
    (out, in_), rule = shape, choose(tokens)
    ways = [FORMULATIONS[name] for name in dict.fromkeys((rule, *names))]
    fastest, medians = _fastest(dict(tune.compiled(ways, *_problem(out, in_, tokens))), rule)
    return tune.Choice(out, in_, tokens, fastest, {name: taken / tune.MATRICES for name, taken in medians.items()})


def _side(head: tuple[int, int], tokens: int) -> tune.Choice:
    """Left or right: the rule's, or the other if it wins every round on some rows, and gives the same bits."""
    (vocab, hidden), rule = head, choose_head(tokens)
    rng = np.random.default_rng(160)
    bits = rng.integers(0, 1 << 16, (min(vocab, _HEAD_ROWS), hidden), dtype=np.uint16) & 0xBFFF | 0x3C00
    rows = lax.bitcast_convert_type(jax.numpy.asarray(bits), jax.numpy.bfloat16)  # of magnitudes 2^-7 to 2
    x = rng.standard_normal((tokens, hidden), np.float32)
    runs, scores = dict[str, Callable[[], jax.Array]](), dict[str, np.ndarray]()
    for name in HEAD_SIDES:
        program = jit(lm_head.SIDES[name])
        runs[name] = partial(tune.finished, program, x, rows)
        scores[name] = np.asarray(runs[name]())
    left, right = scores.values()
    if not np.array_equal(left, right):
        warnings.warn(
            f"the head as left and as right operand gives different bits here ({tokens} tokens): "
            "logits of a prompt may differ from those of its single steps, within a few roundings",
            TritgoldWarning,
            stacklevel=5,
        )
        return tune.Choice(vocab, hidden, tokens, rule, {})
    return tune.Choice(vocab, hidden, tokens, *_fastest(runs, rule))


def _fastest(runs: dict[str, Callable[[], jax.Array]], rule: str) -> tuple[str, dict[str, float]]:
    """The rule's, or the fastest of those that beat it in every round; and the median seconds of each."""
    rounds = [{name: tune.seconds_of(name, run) for name, run in runs.items()} for _ in range(_ROUNDS)]
    medians = {name: float(np.median([each[name] for each in rounds])) for name in runs}
    better = [name for name in runs if all(each[name] < each[rule] for each in rounds)]
    return min(better, key=medians.__getitem__, default=rule), medians


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
