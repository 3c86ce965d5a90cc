"""Every error that tritgold raises on purpose: file, thing, found, expected, remedy.

A bare KeyError, IndexError or struct.error from bad input is a bug in tritgold: a message must say which file and which
tensor is wrong, what was found there, what was expected, and what to do about it.

The ``kind`` is a short stable word for programs (``truncated``, ``overlap``, ``duplicate-name`` ...). Messages
may be reworded; kinds may not, because conformance cases name the kind with which a bad file must be refused.
"""

import math
from typing import Any, Self


class TritgoldError(Exception):
    """Base of all errors. A report stores the fields; ``str()`` is for people.

    >>> print(FormatError("is cut off", kind="truncated", file="m.gguf", thing="tensor 'a'", got=3, expected=4,
    ...                   hint="download it again"))
    m.gguf: tensor 'a': is cut off: found 3, expected 4. download it again [truncated]
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        file: object = None,
        thing: str | None = None,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.kind = kind
        self.file = None if file is None else str(file)
        self.thing = thing
        self.got = got
        self.expected = expected
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        text = ": ".join(part for part in (self.file, self.thing, self.message) if part)
        if self.got is not None:
            text += f": found {self.got}"
        if self.expected is not None:
            text += f", expected {self.expected}" if self.got is not None else f": expected {self.expected}"
        if self.hint:
            text += f". {self.hint}"
        return f"{text} [{self.kind}]"

    def located(self, *, file: object = None, thing: str | None = None) -> Self:
        """The same error; file and thing are set if they were not set before."""
        self.file = self.file or (None if file is None else str(file))
        self.thing = self.thing or thing
        self.args = (self._text(),)
        return self

    def moved(self, scratch: object, path: object) -> Self:
        """The same error; in its file, the temporary path ``scratch`` is replaced by ``path``."""
        self.file = None if self.file is None else self.file.replace(str(scratch), str(path))
        self.args = (self._text(),)
        return self

    def as_dict(self) -> dict[str, Any]:
        """The error for a JSON report; absent fields are null, inf and NaN (not in JSON) are text."""
        fields: dict[str, Any] = {
            "error": type(self).__name__,
            "kind": self.kind,
            "file": self.file,
            "thing": self.thing,
            "message": self.message,
        }
        for name in ("got", "expected"):
            value = getattr(self, name)
            number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))  # JSON has no NaN
            fields[name] = value if value is None or number else str(value)
        return {**fields, "hint": self.hint}


class FormatError(TritgoldError):
    """A container's bytes are not what its format says: truncated, overlapping, of an unknown type ..."""


class OutputError(TritgoldError):
    """Nothing was written: no folder, no space, the name exists already, or the format cannot hold the content."""


class PackingError(TritgoldError, ValueError):
    """Trits that cannot be packed, or packed bytes that are not trits (code 3, wrong length, bad scale)."""


class ConfigError(TritgoldError):
    """A model configuration that is incomplete, contradictory, or needs arithmetic that tritgold does not have."""


class WeightsError(TritgoldError):
    """A checkpoint whose tensors are not the model's: missing, unused, of the wrong shape or type."""


class ConversionError(TritgoldError):
    """A conversion that would lose something without permission, or whose written result is wrong."""


class ContextError(TritgoldError):
    """More tokens than the model has positions for, or a token id outside the vocabulary."""


class NonFiniteError(TritgoldError):
    """Infinity or NaN where the arithmetic defines no result."""


class TraceError(TritgoldError):
    """A trace that cannot be read, or that lacks a requested array."""


class MissingDependencyError(TritgoldError):
    """An optional package is not installed; the hint says what to install."""


class EngineError(TritgoldError):
    """An engine cannot be loaded or violates the protocol, so that it cannot be judged."""


class TritgoldWarning(UserWarning):
    """Valid but unusual: a negative scale, a zero scale for non-zero trits."""
