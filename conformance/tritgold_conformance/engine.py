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
from tritgold.config import ModelConfig
from tritgold.errors import EngineError, TritgoldError
from tritgold.formats.untrusted_text import printable
from tritgold_conformance import forms, guard
from tritgold_conformance.engines import SECONDS, WAYS
from tritgold_conformance.forms import Forms
from tritgold_conformance.settings import Settings

if TYPE_CHECKING:
    from tritgold_conformance.golden import GoldenRun


# Tokens of the longest telling input (``vectors``): engines of ours need room for it, however short the judged text.
TELLING_TOKENS = 4
# An engine has at least one of these.
JUDGED = ("prefill", "trace", "operation", "complete", "statistics", "unpack", "step")


class Engine(Protocol):
    """What an engine may offer: made with one argument, the path of the checkpoint; every method is optional.

    None, or NotImplementedError, says that it does not have it. Any other exception is its own fault. What may be
    returned, in which form: docs/judging.md. Beside the methods it may have ``name``, ``mode`` (its arithmetic, where
    that is not ``golden``) and ``timed`` (False where the judge's clock would not measure it: then ``seconds`` is
    asked, and ``clock`` says whose they are).
    """

    name: str

    def reset(self) -> None:
        """Forget every token."""

    def prefill(self, tokens: list[int]) -> Any:
        """Read tokens behind those read since ``reset``: logits at each, float [tokens, vocab]."""

    def step(self, token: int) -> Any:
        """Read one more token: its logits, float [vocab]."""

    def trace(self, tokens: list[int]) -> Any:
        """Activations of one prefill from position 0, {name: array}; any part of the names of docs/traces.md."""

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> Any:
        """One operation of the graph on given inputs, positions from 0: {role: array}."""

    def statistics(self, tokens: list[int]) -> Any:
        """{name: {moment: number}} of the activations that ``trace`` would show: mean, std, rms, min, max, zeros."""

    def complete(self, tokens: list[int]) -> Any:
        """(token, {id: log-probability}): what it writes greedily behind these, and the likeliest tokens."""

    def unpack(self, format: str, data: bytes, shape: tuple[int, int]) -> Any:
        """float [out, in], trit x scale, of the bytes of a packed matrix; it raises where the bytes are damaged."""

    def generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens, one after the other."""

    def serve(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens as a batch server gives them, the prompt read in chunks and found in a cache."""

    def diffuse(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens by block diffusion."""

    def encode(self, text: str) -> Any:
        """Ids of a text."""

    def chat(self, message: str) -> Any:
        """Ids of a user's message in its template."""

    def stream(self, ids: list[int]) -> Any:
        """Pieces of text, one an id."""

    def seconds(self, tokens: list[int]) -> Any:
        """{"prefill": seconds of reading these at once, "step": of one more token}, by a clock of its own."""

    def versions(self) -> Any:
        """{name: version}, for the report."""


class Candidate:
    """An engine seen by the judge.

    Whatever it returns is copied, for it may use its buffers again, and is refused where it has another form than
    was asked for (``forms``); whatever it prints goes to stderr; whatever it raises, SystemExit included, becomes an
    EngineError with the original as its cause; what it changes for the whole process is its own (``settings``).
    seconds: how long one call may take, see ``limited``. config: of the model, by which shapes are known; ``prepare``
    says it too. settings: those with which the engine was made. asked_once: it has a ``prepare`` of ours, which is told
    the golden run; a stranger's class is never shown that.
    """

    def __init__(
        self,
        engine: object,
        spec: str = "",
        seconds: float = 0,
        config: ModelConfig | None = None,
        settings: Settings | None = None,
        asked_once: bool = False,
    ) -> None:
        self._engine, self._seconds, self._forms = engine, seconds, Forms(config)
        self._settings, self._asked_once = settings or Settings(), asked_once
        self.spec = spec or self.name

    @property
    def engine(self) -> object:
        """The engine itself, for a clock that must not measure the copies made here."""
        return self._engine

    @property
    def name(self) -> str:
        """What the engine calls itself; a program says so only when it has run."""
        return self._attribute("name", type(self._engine).__name__, printable)

    @property
    def mode(self) -> str:
        """The name of the arithmetic that it means to follow, ``golden`` where it names none."""
        return self._attribute("mode", "golden", printable)

    @property
    def timed(self) -> bool:
        """Whether the judge's clock measures tokens/s of it."""
        return self._attribute("timed", True, bool)

    @property
    def clock(self) -> str:
        """Whose clock its ``seconds`` are of, see ``speed.Speed``."""
        return self._attribute("clock", "engine", printable)

    def has(self, method: str) -> bool:
        """Whether the engine offers a method."""
        return self._attribute(method, None, callable)

    def versions(self) -> dict[str, str]:
        """What the engine says about itself; empty where it says nothing."""
        return self._call("versions", lambda v: {printable(k): printable(x) for k, x in dict(v).items()}) or {}

    def prepare(self, golden: "GoldenRun") -> None:
        """Tell it what the judge will ask, where it is an engine that is asked once."""
        self._forms = Forms(golden.checkpoint.config)
        if self._asked_once:
            self._call("prepare", lambda _: None, golden)

    def reset(self) -> None:
        """Forget every token."""
        self._call("reset", lambda _: None)

    def prefill(self, tokens: list[int]) -> np.ndarray | None:
        """Logits at each of the tokens, behind those read since ``reset``, float64. None where it has none."""
        return self._call("prefill", self._forms.logits(len(tokens)), list(tokens))

    def step(self, token: int) -> np.ndarray | None:
        """Logits after one more token, float64 [vocab]. None where it has no ``step``."""
        return self._call("step", self._forms.row, int(token))

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """Activations of a fresh prefill, by name; empty where it shows none."""
        return self._call("trace", self._forms.trace(len(tokens)), list(tokens)) or {}

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """Statistics of the activations of a fresh prefill, by name; empty where it gives none."""
        return self._call("statistics", forms.moments, list(tokens)) or {}

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """One operation. None where the engine does not have it."""
        # Copies: an engine that writes into its inputs must not change what the next one is judged on.
        given = {role: array.copy() for role, array in inputs.items()}
        return self._call("operation", self._forms.outputs(name, inputs), name, given, thing=name)

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]] | None:
        """The token it writes behind these, and log-probabilities by id. None where it has none."""
        return self._call("complete", forms.next_token, list(tokens))

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        """float [out, in], trit x scale, of the bytes of a format. None where it does not read the format."""

        def convert(value: Any) -> np.ndarray:
            return np.array(forms.numbers(value, f"{name} unpacked", tuple(shape)))

        return self._call("unpack", convert, name, data, shape, thing=name)

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """``prefill``: seconds of reading these tokens at once; ``step``: of one more token. None where it says none.

        Either may be missing.
        """
        return self._call("seconds", forms.seconds, list(tokens))

    def ask(self, method: str, *arguments: Any) -> Any:
        """Any other method: an array, a list, or a text. None where the engine has none, or gives none."""
        return self._call(method, forms.plain, *arguments)

    def _attribute(self, name: str, default: Any, convert: Callable[[Any], Any]) -> Any:
        """An attribute may be a property, which is code of the engine's too."""
        engine = f"engine {type(self._engine).__name__}"
        with self._settings.theirs(), contained(f"reading its {name}", engine, "engine-failed"):
            return convert(getattr(self._engine, name, default))

    def _call(self, method: str, convert: Callable[[Any], Any], *args: Any, thing: str = "") -> Any:
        if not self.has(method):
            return None
        what, engine = f"{method} {thing}".strip(), f"engine {self.name}"
        with limited(self._seconds, what, engine):
            with self._settings.theirs(), contained(what, engine, "engine-failed"):
                try:
                    value = getattr(self._engine, method)(*args)
                except NotImplementedError:
                    return None
            if value is None:
                return None
            with contained(f"the answer of {what}", engine, "engine-output"):
                return convert(value)


@contextlib.contextmanager
def contained(what: str, engine: str, kind: str) -> Iterator[None]:
    """Run somebody else's code: its output goes to stderr, its exceptions become EngineError.

    Of any base, or an engine that raises pytest's Skipped would be skipped. Ctrl-C is the user's.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except TritgoldError as error:
        raise error.located(thing=f"{engine}: {what}") from error.__cause__
    except (KeyboardInterrupt, _LateError):
        raise
    except BaseException as error:
        said = f"{type(error).__name__}: {printable(error)}"
        raise EngineError(f"{what} failed: {said}", kind=kind, thing=engine) from error


class _LateError(BaseException):
    """Nothing that an engine's ``except Exception`` would keep."""


@contextlib.contextmanager
def limited(seconds: float, what: str, engine: str) -> Iterator[None]:
    """Interrupt somebody else's Python code after so many seconds, as an EngineError. 0: never.

    By a signal, hence in the main thread alone, and not while native code runs that never returns to Python: then the
    guard, where there is one, ends the process (``guard``).
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not seconds or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: Any) -> None:
        raise _LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # and again each second, should it go on regardless
    guard.tell(f"call {seconds:g} {what}")
    try:
        yield
    except _LateError:
        message = f"{what} took longer than {seconds:g} s"
        raise EngineError(message, kind="engine-timeout", thing=engine, hint="--timeout allows more") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        guard.tell("back")


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
    config = checkpoint.config
    room = max(capacity, TELLING_TOKENS)
    if spec == "reference":
        opener = importlib.import_module("tritgold_conformance.engines.reference").open_engine
        return Candidate(opener(checkpoint, room), spec, config=config)
    if spec == "xla":
        opener = importlib.import_module("tritgold_conformance.engines.xla").open_engine
        return Candidate(opener(checkpoint, room, say=say), spec, config=config)
    if spec in ("transformers", "llama.cpp"):
        opener = importlib.import_module("tritgold_conformance.engines.peers").PEERS[spec]
        return Candidate(opener(checkpoint, model, seconds), spec, config=config, asked_once=True)
    if spec.startswith("cmd:"):
        opener = importlib.import_module("tritgold_conformance.engines.command").open_command
        return Candidate(
            opener(spec.removeprefix("cmd:"), checkpoint, model, seconds), spec, config=config, asked_once=True
        )
    if spec.startswith(("http:", "https:")):
        opener = importlib.import_module("tritgold_conformance.engines.http_server").open_server
        return Candidate(opener(spec, config, seconds), spec, config=config)
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise EngineError("unknown engine", kind="engine-unknown", got=repr(spec), expected=WAYS)
    if os.getcwd() not in sys.path:  # a console script does not look where it is started, as python -m does
        sys.path.insert(0, os.getcwd())
    what, thing, settings = "making it", f"engine {spec}", Settings()
    with limited(seconds, what, thing), settings.theirs(), contained(what, thing, "engine-load"):
        made = _class(module, name, thing)
        engine = made(str(model))
    candidate = Candidate(engine, spec, seconds, config, settings)
    if not any(candidate.has(method) for method in JUDGED):
        expected = f"one of {', '.join(JUDGED)}"
        raise EngineError("offers nothing to judge", kind="engine-protocol", thing=f"engine {spec}", expected=expected)
    return candidate


def _class(module: str, name: str, thing: str) -> Callable[[str], object]:
    """The class of ``module:Class``. What is not there is said in a line; what fails inside it, with its traceback."""
    what, hint = "", "it is looked for in the current folder and on the Python path"
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that it imports itself
        what = f"making it failed: ModuleNotFoundError: {error}"
    raise EngineError(what, kind="engine-load", thing=thing, hint=hint)
