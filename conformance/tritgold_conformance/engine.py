"""Engine: what the judge asks of whatever it judges. A Protocol; an engine imports nothing of ours.

An engine gives what it can. A method it lacks makes a level *not assessed*, never *passed*.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError, TritgoldError


class Engine(Protocol):
    """What an engine may offer. It is made with one argument, the path of the checkpoint; every method is optional.

    ``reset()``: forget every token.
    ``prefill(tokens) -> float [tokens, vocab]``: read tokens behind those read since ``reset``; logits at each.
    ``step(token) -> float [vocab]``: logits after one more token.
    ``trace(tokens) -> {name: array}`` (or an object whose ``arrays`` is that): activations of one prefill from
        position 0, by the names of docs/traces.md; any part of them.
    ``operation(name, inputs) -> {role: array}``: one operation of the graph on given inputs, positions from 0; by the
        roles of docs/judging.md.
    ``statistics(tokens) -> {name: {"mean": ...}}``: mean, std, rms, min, max and zeros of the same activations, for an
        engine that shows no more; any part of them.
    ``versions() -> {name: version}``: for the report.

    None, or NotImplementedError, says that the engine does not have it. Any other exception is its own fault.
    """

    name: str


class Candidate:
    """An engine seen by the judge.

    Whatever it returns is copied, for it may use its buffers again; whatever it prints goes to stderr; whatever it
    raises, SystemExit included, becomes an EngineError with the original as its cause.
    """

    def __init__(self, engine: object, spec: str = "") -> None:
        self._engine = engine
        self.name = str(getattr(engine, "name", type(engine).__name__))
        self.spec = spec or self.name

    def has(self, method: str) -> bool:
        """Whether the engine offers a method."""
        return callable(getattr(self._engine, method, None))

    def versions(self) -> dict[str, str]:
        """What the engine says about itself; empty where it says nothing."""
        return self._call("versions", lambda v: {str(k): str(x) for k, x in dict(v).items()}) or {}

    def reset(self) -> None:
        """Forget every token."""
        self._call("reset", lambda _: None)

    def prefill(self, tokens: list[int]) -> np.ndarray | None:
        """Logits at each of the tokens, behind those read since ``reset``, float64. None where it has none."""
        return self._call("prefill", _floats, list(tokens))

    def step(self, token: int) -> np.ndarray | None:
        """Logits after one more token, float64 [vocab]. None where it has no ``step``."""
        return self._call("step", lambda row: _floats(row).reshape(-1), int(token))

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """Activations of a fresh prefill, by name; empty where it shows none."""
        return self._call("trace", _arrays, list(tokens)) or {}

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """Statistics of the activations of a fresh prefill, by name; empty where it gives none."""
        return self._call("statistics", _moments, list(tokens)) or {}

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """One operation. None where the engine does not have it."""
        # Copies: an engine that writes into its inputs must not change what the next one is judged on.
        given = {role: array.copy() for role, array in inputs.items()}
        return self._call("operation", _arrays, name, given, thing=name)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Any other method: an array, a list, or a text. None where the engine has none, or gives none."""
        return self._call(method, _plain, *arguments)

    def _call(self, method: str, convert: Callable[[Any], Any], *args: Any, thing: str = "") -> Any:
        if not self.has(method):
            return None
        with contained(f"{method} {thing}".strip(), f"engine {self.name}", "engine-failed"):
            try:
                value = getattr(self._engine, method)(*args)
            except NotImplementedError:
                return None
            return None if value is None else convert(value)


@contextlib.contextmanager
def contained(what: str, engine: str, kind: str) -> Any:
    """Run somebody else's code: its output goes to stderr, its exceptions become EngineError."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except TritgoldError:
        raise
    except (Exception, SystemExit) as error:
        raise EngineError(f"{what} failed: {type(error).__name__}: {error}", kind=kind, thing=engine) from error


def load_engine(spec: str, model: Path, checkpoint: Checkpoint, capacity: int) -> Candidate:
    """``xla``, ``reference`` or ``module:Class``, opened on a checkpoint.

    checkpoint: the same, opened already, for the engines of ours; capacity: positions that they need room for.
    Raises EngineError when a class cannot be imported or made, MissingDependencyError when JAX is not there.
    """
    if spec in ("xla", "reference"):
        opener = importlib.import_module(f"tritgold_conformance.engines.{spec}").open_engine
        return Candidate(opener(checkpoint, capacity), spec)
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        expected = "xla, reference or module:Class"
        raise EngineError("unknown engine", kind="engine-unknown", got=repr(spec), expected=expected)
    if os.getcwd() not in sys.path:  # a console script does not look where it is started, as python -m does
        sys.path.insert(0, os.getcwd())
    with contained("making it", f"engine {spec}", "engine-load"):
        engine = getattr(importlib.import_module(module), name)(str(model))
    candidate = Candidate(engine, spec)
    if not any(candidate.has(method) for method in ("prefill", "trace", "operation")):
        expected = "prefill(tokens), trace(tokens) or operation(name, inputs)"
        raise EngineError("offers nothing to judge", kind="engine-protocol", thing=f"engine {spec}", expected=expected)
    return candidate


def _floats(value: Any) -> np.ndarray:
    """A copy as float64, from whatever can be read as numbers: bfloat16 too, and tensors of other libraries."""
    return np.array(np.asarray(value), np.float64)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return list(value) if isinstance(value, list | tuple) else np.array(value)


def _moments(value: Any) -> dict[str, dict[str, float]]:
    return {str(name): {str(k): float(v) for k, v in dict(of).items()} for name, of in dict(value).items()}


def _arrays(value: Any) -> dict[str, np.ndarray]:
    named = dict(getattr(value, "arrays", value))
    return {str(name): np.array(array) for name, array in named.items() if array is not None}
