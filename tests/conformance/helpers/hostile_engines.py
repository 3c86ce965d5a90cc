"""Engines whose texts contain control sequences for the terminal of the person who judges them."""

from pathlib import Path
from typing import Any

from tritgold.checkpoint import open_checkpoint
from tritgold_conformance.golden.reference_engine import ReferenceEngine

BAD = "\x1b[2A\x1b]0;t\x07\x9b31m\rx\u202e\u2066\u200f\nforged conforms.\n[bold]b[/] [/nothing] \\"


class Named:
    """Wrong, with control sequences in its name, versions and array names."""

    name = BAD

    def __init__(self, model: str) -> None:
        self._inner = ReferenceEngine(open_checkpoint(Path(model)))

    def versions(self) -> dict[str, str]:
        return {BAD: BAD}

    def reset(self) -> None:
        self._inner.reset()

    def prefill(self, tokens: list[int]) -> Any:
        return -self._inner.prefill(tokens)

    def statistics(self, tokens: list[int]) -> Any:
        return {BAD: {"rms": 1.0}, "logits": {"rms": 1.0}}


class NamedAndRight(Named):
    statistics = None  # type: ignore[assignment]

    def prefill(self, tokens: list[int]) -> Any:
        return self._inner.prefill(tokens)


class Raises(Named):
    """With control sequences in an exception and in its cause."""

    def prefill(self, tokens: list[int]) -> Any:
        try:
            raise ValueError(BAD)
        except ValueError as error:
            raise RuntimeError(BAD) from error
