"""The engine under test: any engine, seen by the judge. Its answers are copied and checked, its failures contained."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, TritgoldError
from tritgold.formats.untrusted_text import printable
from tritgold_conformance.contract import answer_shapes, guard
from tritgold_conformance.contract.answer_shapes import Forms
from tritgold_conformance.contract.process_state import Settings

if TYPE_CHECKING:
    from tritgold_conformance.golden.run import GoldenRun


class EngineUnderTest:
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
        return self._call("statistics", answer_shapes.moments, list(tokens)) or {}

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """One operation. None where the engine does not have it."""
        # Copies: an engine that writes into its inputs must not change what the next one is judged on.
        given = {role: array.copy() for role, array in inputs.items()}
        return self._call("operation", self._forms.outputs(name, inputs), name, given, thing=name)

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]] | None:
        """The token it writes behind these, and log-probabilities by id. None where it has none."""
        return self._call("complete", answer_shapes.next_token, list(tokens))

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        """float [out, in], trit x scale, of the bytes of a format. None where it does not read the format."""

        def convert(value: Any) -> np.ndarray:
            return np.array(answer_shapes.numbers(value, f"{name} unpacked", tuple(shape)))

        return self._call("unpack", convert, name, data, shape, thing=name)

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """``prefill``: seconds of reading these tokens at once; ``step``: of one more token. None where it says none.

        Either may be missing.
        """
        return self._call("seconds", answer_shapes.seconds, list(tokens))

    def ask(self, method: str, *arguments: Any) -> Any:
        """Any other method: an array, a list, or a text. None where the engine has none, or gives none."""
        return self._call(method, answer_shapes.plain, *arguments)

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
