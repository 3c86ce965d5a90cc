"""EngineUnderTest: any engine, wrapped for the judge, which copies and checks its answers and contains its failures."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, TritgoldError
from tritgold.formats.untrusted_text import printable
from tritgold_conformance.contract import answer_shapes
from tritgold_conformance.contract.answer_shapes import Forms
from tritgold_conformance.contract.engine import BEHAVIOURS
from tritgold_conformance.contract.session import Rows, Session, read_in_turns


class EngineUnderTest:
    """A wrapper around an engine for the judge.

    Every result is copied, because the engine may reuse its buffers, and is refused if it has a wrong form
    (``answer_shapes``); every exception, including SystemExit, becomes an EngineError with the original as its cause.
    config: of the model, from which shapes are known; ``prepare`` sets it too. asked_once: the engine is one of
    tritgold's that runs a program; ``prepare`` tells it all questions, and ``offers`` what was answered; other classes
    never receive the golden run. in_process: a foreign class that runs in this process without protection.
    checked: False for the golden model with a fault, whose codes may be floats. again: makes a second instance;
    an engine with asked_once may offer ``twice`` instead.
    """

    def __init__(
        self,
        engine: object,
        spec: str = "",
        config: ModelConfig | None = None,
        asked_once: bool = False,
        in_process: bool = False,
        checked: bool = True,
        again: Callable[[], object] | None = None,
    ) -> None:
        self._engine, self._forms, self._asked_once = engine, Forms(config), asked_once
        self._checked, self._again = checked, again
        self._second: EngineUnderTest | None = None
        self.in_process = in_process
        self.spec = spec or self.name

    @property
    def engine(self) -> object:
        """The engine itself, for a clock that must not include the copies made here."""
        return self._engine

    @property
    def name(self) -> str:
        """The engine's name; a program reports it only after a run."""
        return self._attribute("name", type(self._engine).__name__, printable)

    @property
    def mode(self) -> str:
        """The name of the engine's arithmetic, ``golden`` if it gives none."""
        return self._attribute("mode", "golden", printable)

    @property
    def policy(self) -> str:
        """The name of the precision that it declares, ``float32`` where it declares none."""
        return self._attribute("policy", "float32", printable)

    @property
    def judged_text(self) -> list[int] | None:
        """The ids of the only text that it answers; None where it reads any."""
        return self._attribute("judged_text", None, lambda ids: None if ids is None else list(ids))

    @property
    def timed(self) -> bool:
        """Whether the judge's clock can measure its tokens/s."""
        return self._attribute("timed", True, bool)

    @property
    def clock(self) -> str:
        """Whose clock measures its ``seconds``, see ``clock.Speed``."""
        return self._attribute("clock", "engine", printable)

    def has(self, method: str) -> bool:
        """Whether the engine has a method; for a program, whether it answered when asked."""
        if self._asked_once and method != "versions":
            return self._attribute("offers", None, lambda offers: bool(offers(method)))
        return self._attribute(method, None, callable)

    def versions(self) -> dict[str, str]:
        """The versions that the engine reports; empty if it reports none."""
        return self._call("versions", lambda v: {printable(k): printable(x) for k, x in dict(v).items()}) or {}

    @property
    def twice(self) -> bool:
        """Whether two instances can be read in turns."""
        return self.has("twice") if self._asked_once else self._again is not None

    def forget(self) -> None:
        """Delete a program's earlier answers, before another golden run begins."""
        if self._asked_once:
            self._attribute("forget", None, lambda forget: forget())

    def prepare(self, asked: object, config: ModelConfig) -> None:
        """Set the model's configuration; give an engine with asked_once all questions, a RequestBatch."""
        self._forms = Forms(config if self._checked else None)
        if self._asked_once:
            self._attribute("prepare", None, lambda prepare: prepare(asked))

    def read(self, sessions: Sequence[Session], begin: Callable[[str], None] = lambda _: None) -> list[Rows]:
        """Logits [tokens, vocab] of one session, or of two that are read in turns; None if the engine does not answer.

        Shape (0, 0) if rows have different widths. begin: receives the name of each call.
        """
        if self._asked_once:
            return [self._call("session", self._forms.logits(len(s.tokens)), s, needs=s.calls[0]) for s in sessions]
        readers: list[EngineUnderTest] = [self]
        if len(sessions) > 1 and self._second is None and self._again is not None:
            with contained("making it again", f"engine {self.name}", "engine-load"):
                self._second = EngineUnderTest(self._again(), self.spec, checked=self._checked)
                self._second._forms = self._forms
        return read_in_turns(readers if self._second is None else [*readers, self._second], sessions, begin)

    def reset(self) -> None:
        """Forget all tokens."""
        self._call("reset", lambda _: None)

    def prefill(self, tokens: list[int]) -> np.ndarray | None:
        """Logits at each of the tokens, after those read since ``reset``, float64. None if it has no ``prefill``."""
        return self._call("prefill", self._forms.logits(len(tokens)), list(tokens))

    def step(self, token: int) -> np.ndarray | None:
        """Logits after one more token, float64 [vocab]. None if it has no ``step``."""
        return self._call("step", self._forms.row, int(token))

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """Activations of a new prefill, by name; empty if it gives none."""
        return self._call("trace", self._forms.trace(len(tokens)), list(tokens)) or {}

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """Statistics of the activations of a new prefill, by name; empty if it gives none."""
        return self._call("statistics", answer_shapes.moments, list(tokens)) or {}

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Outputs by role of one operation. None if the engine does not have it."""
        # Copies: an engine that changes its inputs must not change them for later comparisons.
        given = {role: array.copy() for role, array in inputs.items()}
        return self._call("operation", self._forms.outputs(name, inputs), name, given, thing=name)

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]] | None:
        """The token that it generates after these, and log-probabilities by id. None if it has no ``complete``."""
        return self._call("complete", answer_shapes.next_token, list(tokens))

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        """float [out, in], trit x scale, from the bytes of a format. None if it does not read the format."""

        def convert(value: Any) -> np.ndarray:
            return np.array(answer_shapes.numbers(value, f"{name} unpacked", tuple(shape)))

        return self._call("unpack", convert, name, data, shape, thing=name)

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """``prefill``: seconds to read these tokens at once; ``step``: to read one more token. None if it gives none.

        Either may be missing.
        """
        return self._call("seconds", answer_shapes.seconds, list(tokens))

    def timed_rows(self) -> dict[str, np.ndarray]:
        """The logits of the calls that ``seconds`` timed, if a host recorded them."""
        return self._attribute("timed_rows", {}, dict) if self._asked_once else {}

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of any other method: an array, a list, or a text. None if the engine has no such method."""
        if self._asked_once and method in BEHAVIOURS:
            return self._call("behaviour", answer_shapes.plain, method, *arguments, needs=method)
        return self._call(method, answer_shapes.plain, *arguments)

    def _attribute(self, name: str, default: Any, convert: Callable[[Any], Any]) -> Any:
        """An attribute of the engine; it may be a property, which runs the engine's code."""
        engine = f"engine {type(self._engine).__name__}"
        with contained(f"reading its {name}", engine, "engine-failed"):
            return convert(getattr(self._engine, name, default))

    def _call(self, method: str, convert: Callable[[Any], Any], *args: Any, thing: str = "", needs: str = "") -> Any:
        if not self.has(needs or method):
            return None
        what, engine = f"{needs or method} {thing}".strip(), f"engine {self.name}"
        with contained(what, engine, "engine-failed"):
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
    """Run code of an engine: its exceptions become EngineError.

    This includes exceptions that are not an Exception, such as pytest's Skipped. KeyboardInterrupt passes through.
    """
    try:
        yield
    except TritgoldError as error:
        raise error.located(thing=f"{engine}: {what}") from error.__cause__
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        said = f"{type(error).__name__}: {printable(error)}"
        raise EngineError(f"{what} failed: {said}", kind=kind, thing=engine) from error
