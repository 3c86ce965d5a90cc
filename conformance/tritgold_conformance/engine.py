"""Engine: what the judge asks of whatever it judges. A Protocol; an engine imports nothing of ours.

An engine gives what it can. A method it lacks makes a level *not assessed*, never *passed*.
"""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from tritgold.errors import EngineError, TritgoldError


class Engine(Protocol):
    """The smallest engine: a name and logits. It is made with one argument, the path of the checkpoint.

    The optional methods are found by name:

    ``step(token) -> float [vocab]``: logits after one more token, behind what was read since ``reset``.
    ``trace(tokens) -> {name: array}`` (or an object whose ``arrays`` is that): activations of one prefill, by the
        names of ``tritgold.graph``; any part of them.
    ``operation(name, inputs) -> {role: array}``: one operation of the graph on given inputs, positions from 0.
    ``versions() -> {name: version}``: for the report.
    """

    name: str

    def reset(self) -> None:
        """Forget every token."""

    def prefill(self, tokens: list[int]) -> Any:
        """Read tokens behind those read since ``reset``; float [tokens, vocab] logits at every position."""


class Candidate:
    """An engine seen by the judge: optional methods by level, and every failure of its own turned into EngineError."""

    def __init__(self, engine: Engine, spec: str = "") -> None:
        self._engine = engine
        self.name = str(getattr(engine, "name", type(engine).__name__))
        self.spec = spec or self.name

    def has(self, method: str) -> bool:
        """Whether the engine offers an optional method."""
        return callable(getattr(self._engine, method, None))

    def versions(self) -> dict[str, str]:
        """What the engine says about itself; empty where it says nothing."""
        if not self.has("versions"):
            return {}
        return {str(k): str(v) for k, v in dict(self._call("versions")).items()}

    def prefill(self, tokens: list[int]) -> np.ndarray:
        """Logits at every position of a fresh sequence."""
        self._call("reset")
        return self._array(self._call("prefill", list(tokens)), "prefill")

    def step(self, token: int) -> np.ndarray:
        """Logits after one more token."""
        return self._array(self._call("step", int(token)), "step").reshape(-1)

    def reset(self) -> None:
        """Forget every token."""
        self._call("reset")

    def trace(self, tokens: list[int]) -> dict[str, Any]:
        """Activations of a fresh prefill, by name."""
        traced = self._call("trace", list(tokens))
        return dict(getattr(traced, "arrays", traced))

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, Any] | None:
        """One operation. None where the engine says that it does not have it (NotImplementedError or None)."""
        # The engine gets copies: one that writes into its inputs must not change what the next is judged on.
        try:
            outputs = self._call("operation", name, {role: array.copy() for role, array in inputs.items()})
        except NotImplementedError:
            return None
        return None if outputs is None else dict(outputs)

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._engine, method)(*args)
        except (TritgoldError, NotImplementedError):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise EngineError(f"{method} failed: {what}", kind="engine-failed", thing=f"engine {self.name}") from error

    def _array(self, value: Any, method: str) -> np.ndarray:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            got = f"{type(value).__name__} of {array.dtype}"
            raise EngineError(
                f"{method} returned no numbers", kind="engine-result", thing=f"engine {self.name}", got=got
            )
        return array


def load_engine(spec: str, model: Path) -> Candidate:
    """``xla``, ``reference`` or ``module:Class``, opened on a checkpoint.

    Raises EngineError when the class cannot be imported or made, MissingDependencyError when JAX is not there.
    """
    if spec in ("xla", "reference"):
        opener: Callable[[Path], Engine] = importlib.import_module(f"tritgold_conformance.engines.{spec}").open_engine
        return Candidate(opener(model), spec)
    module_name, colon, class_name = spec.partition(":")
    if not colon or not module_name or not class_name:
        raise EngineError(
            "unknown engine", kind="engine-unknown", got=repr(spec), expected="xla, reference or module:Class"
        )
    if os.getcwd() not in sys.path:  # a console script does not look where it is started, as python -m does
        sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module_name), class_name)(str(model))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        hint = "the module must be importable from here (PYTHONPATH), the class takes the path of the checkpoint"
        raise EngineError(f"cannot be made: {what}", kind="engine-load", thing=f"engine {spec}", hint=hint) from error
    for method in ("reset", "prefill"):
        if not callable(getattr(made, method, None)):
            raise EngineError(f"has no method {method!r}", kind="engine-protocol", thing=f"engine {spec}")
    return Candidate(cast(Engine, made), spec)
