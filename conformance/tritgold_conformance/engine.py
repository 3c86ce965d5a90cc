"""Engine: what the judge asks of whatever it judges. A Protocol; an engine imports nothing of ours.

An engine gives what it can. A method it lacks makes a level *not assessed*, never *passed*.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError, TritgoldError
from tritgold_conformance.engines import SECONDS, WAYS

if TYPE_CHECKING:
    from tritgold_conformance.golden import GoldenRun


# Tokens of the longest telling input (``vectors``): engines of ours need room for it, however short the judged text.
TELLING_TOKENS = 4


class Engine(Protocol):
    """What an engine may offer. It is made with one argument, the path of the checkpoint; every method is optional.

    ``reset()``: forget every token.
    ``prefill(tokens) -> float [tokens, vocab]``: read tokens behind those read since ``reset``; logits at each.
    ``step(token) -> float [vocab]``: logits after one more token.
    ``trace(tokens) -> {name: array}`` (or an object whose ``arrays`` is that): activations of one prefill from
        position 0, by the names of docs/traces.md; any part of them.
    ``operation(name, inputs) -> {role: array}``: one operation of the graph on given inputs, positions from 0; by the
        roles of docs/judging.md.
    ``complete(tokens) -> (token, {id: log-probability})``: the token that it would write greedily behind these, and the
        log-probabilities of the most likely ones; for engines that show no logits.
    ``statistics(tokens) -> {name: {"mean": ...}}``: mean, std, rms, min, max and zeros of the same activations, for an
        engine that shows no more; any part of them.
    ``versions() -> {name: version}``: for the report.
    ``prepare(golden)``: told once what will be asked, for engines that are asked once. ``timed``: False for those
        whose tokens/s would say nothing. ``mode``: the name of its arithmetic, where that is not ``golden``.

    None, or NotImplementedError, says that the engine does not have it. Any other exception is its own fault.
    """

    name: str


class Candidate:
    """An engine seen by the judge.

    Whatever it returns is copied, for it may use its buffers again; whatever it prints goes to stderr; whatever it
    raises, SystemExit included, becomes an EngineError with the original as its cause. seconds: how long one call may
    take, see ``limited``.
    """

    def __init__(self, engine: object, spec: str = "", seconds: float = 0) -> None:
        self._engine, self._seconds = engine, seconds
        self.spec = spec or self.name

    @property
    def engine(self) -> object:
        """The engine itself, for a clock that must not measure the copies made here."""
        return self._engine

    @property
    def name(self) -> str:
        """What the engine calls itself; a program says so only when it has run."""
        return str(getattr(self._engine, "name", type(self._engine).__name__))

    @property
    def mode(self) -> str:
        """The name of the arithmetic that it means to follow, ``golden`` where it names none."""
        return str(getattr(self._engine, "mode", "golden"))

    @property
    def timed(self) -> bool:
        """Whether tokens/s of it mean anything."""
        return bool(getattr(self._engine, "timed", True))

    def has(self, method: str) -> bool:
        """Whether the engine offers a method."""
        return callable(getattr(self._engine, method, None))

    def versions(self) -> dict[str, str]:
        """What the engine says about itself; empty where it says nothing."""
        return self._call("versions", lambda v: {str(k): str(x) for k, x in dict(v).items()}) or {}

    def prepare(self, golden: "GoldenRun") -> None:
        """Tell it what the judge will ask."""
        self._call("prepare", lambda _: None, golden)

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

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]] | None:
        """The token it writes behind these, and log-probabilities by id. None where it has none."""
        return self._call("complete", _next_token, list(tokens))

    def ask(self, method: str, *arguments: Any) -> Any:
        """Any other method: an array, a list, or a text. None where the engine has none, or gives none."""
        return self._call(method, _plain, *arguments)

    def _call(self, method: str, convert: Callable[[Any], Any], *args: Any, thing: str = "") -> Any:
        if not self.has(method):
            return None
        what = f"{method} {thing}".strip()
        with contained(what, f"engine {self.name}", "engine-failed"), limited(self._seconds):
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
    except _LateError as late:
        raise EngineError(f"{what} {late}", kind="engine-timeout", thing=engine, hint="--timeout allows more") from None
    except (Exception, SystemExit) as error:
        raise EngineError(f"{what} failed: {type(error).__name__}: {error}", kind=kind, thing=engine) from error


class _LateError(BaseException):
    """Nothing that an engine's ``except Exception`` would keep."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt somebody else's Python code after so many seconds; ``contained``, around it, says so. 0: never.

    By a signal, hence in the main thread alone, and not while native code runs that never returns to Python: that is
    what a program is for (``cmd:``), which can be killed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not seconds or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: Any) -> None:
        raise _LateError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # and again each second, should it go on regardless
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def load_engine(
    spec: str,
    model: Path,
    checkpoint: Checkpoint,
    capacity: int,
    seconds: float = SECONDS,
    say: Callable[[str], None] | None = None,
) -> Candidate:
    """What ``--engine`` names (WAYS), opened on a checkpoint.

    checkpoint: the same, opened already, for the engines of ours; capacity: positions that they need room for.
    seconds: how long one run of a program, one answer of a server or one call of a class may take.
    say: hears how far loading is, where the engine tells.
    Raises EngineError when an engine cannot be found or made, MissingDependencyError when what it needs is not there.
    """
    room = max(capacity, TELLING_TOKENS)
    if spec == "reference":
        opener = importlib.import_module("tritgold_conformance.engines.reference").open_engine
        return Candidate(opener(checkpoint, room), spec)
    if spec == "xla":
        opener = importlib.import_module("tritgold_conformance.engines.xla").open_engine
        return Candidate(opener(checkpoint, room, say=say), spec)
    if spec in ("transformers", "llama.cpp"):
        opener = importlib.import_module("tritgold_conformance.engines.peers").PEERS[spec]
        return Candidate(opener(checkpoint, model, seconds), spec)
    if spec.startswith("cmd:"):
        opener = importlib.import_module("tritgold_conformance.engines.command").open_command
        return Candidate(opener(spec.removeprefix("cmd:"), checkpoint, model, seconds), spec)
    if spec.startswith(("http:", "https:")):
        opener = importlib.import_module("tritgold_conformance.engines.http_server").open_server
        return Candidate(opener(spec, checkpoint.config, seconds), spec)
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise EngineError("unknown engine", kind="engine-unknown", got=repr(spec), expected=WAYS)
    if os.getcwd() not in sys.path:  # a console script does not look where it is started, as python -m does
        sys.path.insert(0, os.getcwd())
    with contained("making it", f"engine {spec}", "engine-load"), limited(seconds):
        engine = getattr(importlib.import_module(module), name)(str(model))
    candidate = Candidate(engine, spec, seconds)
    if not any(candidate.has(method) for method in ("prefill", "trace", "operation", "complete")):
        expected = "prefill(tokens), trace(tokens), operation(name, inputs) or complete(tokens)"
        raise EngineError("offers nothing to judge", kind="engine-protocol", thing=f"engine {spec}", expected=expected)
    return candidate


def _floats(value: Any) -> np.ndarray:
    """A copy as float64, from whatever can be read as numbers: bfloat16 too, and tensors of other libraries."""
    return np.array(np.asarray(value), np.float64)


def _next_token(value: Any) -> tuple[int, dict[int, float]]:
    token, logprobs = value
    return int(token), {int(i): float(x) for i, x in dict(logprobs).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return list(value) if isinstance(value, list | tuple) else np.array(value)


def _moments(value: Any) -> dict[str, dict[str, float]]:
    return {str(name): {str(k): float(v) for k, v in dict(of).items()} for name, of in dict(value).items()}


def _arrays(value: Any) -> dict[str, np.ndarray]:
    named = dict(getattr(value, "arrays", value))
    return {str(name): np.array(array) for name, array in named.items() if array is not None}
