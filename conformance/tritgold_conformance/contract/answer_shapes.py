"""The form of answers: names, shapes and dtypes, the same for classes, programs and servers.

An answer of another form cannot be judged (exit code 3): nothing is converted, parsed or guessed.
Wrong numbers in the right form, including NaN, are judged (exit code 1).
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.formats.untrusted_text import printable
from tritgold.graph import Operation, Traced, operations, traced_arrays

Shape = tuple[int, ...]
LEAST_SECONDS = 1e-7  # for one call: no machine reads a token in less
HINT = "docs/judging.md#what-is-exit-code-1-and-what-is-3"


def tokens_of(operation: Operation, inputs: dict[str, np.ndarray]) -> int:
    """The number of tokens in the inputs of an operation."""
    role, array = next(iter(inputs.items()))
    return array.shape[operation.inputs[role].token_axis]


def numbers(value: Any, what: str, shape: Shape | None = None, integers: bool = False) -> np.ndarray:
    """The value as an array, not copied: float, integer or bfloat16, of the given shape (None: any shape).

    integers: floats are refused, even with integer values. Raises EngineError, kind ``engine-output``.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16":
        raise refused(f"{what} is not an array of numbers", array.dtype, "floats" if not integers else "integers")
    if integers and array.dtype.kind not in "iu":
        raise refused(f"{what} holds no integers", array.dtype, "an integer type")
    if shape is not None and array.shape != shape:
        raise refused(f"{what} has another shape", list(array.shape), list(shape))
    return array


def refused(message: str, got: object = None, expected: object = None) -> EngineError:
    """The error for an answer of a wrong form; the caller adds the engine's name."""
    shown = None if got is None else printable(got)
    return EngineError(message, kind="engine-output", got=shown, expected=expected, hint=HINT)


class Forms:
    """Checks and copies answers of engines of one model. config None: the model, and so the shapes, are not known."""

    def __init__(self, config: ModelConfig | None = None) -> None:
        self._config = config
        self._operations = {} if config is None else {o.name: o for o in operations(config)}

    def logits(self, tokens: int) -> Callable[[Any], np.ndarray]:
        """float64 [tokens, vocab], a copy."""
        shape = None if self._config is None else (tokens, self._config.vocab)
        return lambda value: _copied(numbers(value, "the array of logits", shape))

    def row(self, value: Any) -> np.ndarray:
        """float64 [vocab], a copy. [1, vocab] is also accepted: many libraries return it for a batch of one."""
        array = numbers(value, "the row of logits")
        array = array[0] if array.ndim == 2 and len(array) == 1 else array
        shape = (self._config.vocab,) if self._config is not None else (array.size,)
        return _copied(numbers(array, "the row of logits", shape))

    def outputs(self, name: str, inputs: dict[str, np.ndarray]) -> Callable[[Any], dict[str, np.ndarray]]:
        """Outputs of one operation by role, copies; some of its roles are enough, other roles are refused."""
        operation = self._operations.get(name)
        if operation is None or self._config is None:
            return lambda value: {role: np.array(array) for role, array in _named(value).items()}
        config, tokens = self._config, tokens_of(operation, inputs)

        def convert(value: Any) -> dict[str, np.ndarray]:
            given = _named(value)
            unknown, outputs = sorted(given.keys() - operation.outputs.keys()), operation.outputs
            if unknown or not given:
                raise refused(f"{name} returns other roles", ", ".join(unknown) or "nothing", ", ".join(outputs))
            return {role: _traced(x, f"{name}, {role}", outputs[role], config, tokens) for role, x in given.items()}

        return convert

    def trace(self, tokens: int) -> Callable[[Any], dict[str, np.ndarray]]:
        """Activations by name, copies. For unknown names the array is empty, so that a report can list them."""
        config = self._config

        def convert(value: Any) -> dict[str, np.ndarray]:
            given = _named(getattr(value, "arrays", value))
            if config is None:
                return {name: np.array(array) for name, array in given.items()}
            known, found = traced_arrays(config), {name: np.zeros(0) for name in given}
            for name in given.keys() & known.keys():
                found[name] = _traced(given[name], name, known[name], config, tokens)
            return found

        return convert


def next_token(value: Any) -> tuple[int, dict[int, float]]:
    """(token, {id: log-probability})."""
    try:
        token, logprobs = value
        pairs = list(dict(logprobs).items())
        return _whole(token), {_whole(i): _number(x) for i, x in pairs}
    except (TypeError, ValueError) as error:
        raise refused(f"is not a pair of a token and {{id: log-probability}} ({printable(error)})") from None


def moments(value: Any) -> dict[str, dict[str, float]]:
    """name -> {moment: number}, from ``statistics``."""
    try:
        return {str(name): {str(k): _number(v) for k, v in dict(of).items()} for name, of in dict(value).items()}
    except (TypeError, ValueError) as error:
        raise refused(f"is not {{name: {{moment: number}}}} ({printable(error)})") from None


def seconds(value: Any) -> dict[str, float]:
    """``prefill`` and ``step`` -> seconds, LEAST_SECONDS or more; either may be missing or None."""
    try:
        found = {str(k): _number(v) for k, v in dict(value).items() if v is not None}
    except (TypeError, ValueError) as error:
        raise refused(f"is not {{what: seconds}} ({printable(error)})") from None
    for what, number in found.items():
        if what not in ("prefill", "step") or not LEAST_SECONDS <= number < float("inf"):
            least = f"prefill and step, seconds, {LEAST_SECONDS:g} or more"
            raise refused("is not {what: seconds}", f"{what}: {number}", least)
    return found


def plain(value: Any) -> Any:
    """A text, a list of ids or texts, or an array of numbers; a copy."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple) and not any(isinstance(x, list | tuple | np.ndarray) for x in value):
        return [str(x) if isinstance(x, str) else _whole(x) for x in value]
    return np.array(numbers(value, "the answer"))


def _named(value: Any) -> dict[str, Any]:
    try:
        return {str(name): array for name, array in dict(value).items() if array is not None}
    except (TypeError, ValueError) as error:
        raise refused(f"is not {{name: array}} ({printable(error)})") from None


def _traced(value: Any, what: str, traced: Traced, config: ModelConfig, tokens: int) -> np.ndarray:
    """A copy, with the shape and kind of numbers that the graph states."""
    return np.array(numbers(value, what, traced.shape(config, tokens), traced.dtype != "float32"))


def _copied(array: np.ndarray) -> np.ndarray:
    return np.array(array, np.float64)


def _whole(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError("a truth value is not a token")
    return operator.index(value)


def _number(value: Any) -> float:
    """A float; not from text, truth values or arrays of several numbers."""
    if isinstance(value, str | bytes | bool | np.bool_):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
