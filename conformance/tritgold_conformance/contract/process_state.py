"""Settings of the whole process that somebody else's code may change: kept for it, and ours put back."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class _State:
    """What NumPy does about overflows, warning filters, and the current folder; None where that is gone."""

    errors: Any
    filters: list[Any]
    folder: str | None

    @classmethod
    def now(cls) -> "_State":
        folder = None
        with suppress(OSError):
            folder = os.getcwd()
        return cls(np.geterr(), list(warnings.filters), folder)

    def put_back(self) -> None:
        np.seterr(**self.errors)
        warnings.filters = self.filters
        if self.folder is not None:
            with suppress(OSError):
                os.chdir(self.folder)


class Settings:
    """Those of one engine: an ``np.seterr(all="raise")`` of its own is in force whenever it runs, and never for us."""

    def __init__(self) -> None:
        self._theirs: _State | None = None
        self._inside = False

    @contextmanager
    def theirs(self) -> Iterator[None]:
        """Around the engine's code. Ours are back at every end; within itself it does nothing."""
        if self._inside:
            yield
            return
        ours, self._inside = _State.now(), True
        with warnings.catch_warnings():  # which also puts back how a warning is shown
            if self._theirs is not None:
                self._theirs.put_back()
            try:
                yield
            finally:
                self._theirs, self._inside = _State.now(), False
                ours.put_back()
