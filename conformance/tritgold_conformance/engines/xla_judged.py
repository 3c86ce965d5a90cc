"""The JAX engine with all methods for the judge: its own, and ``statistics`` and ``complete``."""

from typing import TYPE_CHECKING, Any

import numpy as np

from tritgold_conformance.comparing.activation_statistics import MOMENTS, moments

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine

MOST_SHOWN = 4096  # log-probabilities of one next token: all of a small vocabulary


class JudgedXlaEngine:
    """An XlaEngine for the judge. All other attributes are the engine's."""

    def __init__(self, engine: "XlaEngine") -> None:
        self._engine = engine
        self._beside: XlaEngine | None = None  # made at its first use
        self._read = list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """MOMENTS of every array of ``trace``, over all its elements; inf if one is not finite."""
        arrays = self._engine.trace(tokens).arrays
        return {name: dict(zip(MOMENTS, moments(array).tolist(), strict=True)) for name, array in arrays.items()}

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        """(the token of the largest logit, {id: log-probability} of the MOST_SHOWN most likely); log-softmax, float64.

        Computed by steps of a fork with its own cache: tokens that are the last ones and one more need only one step.
        """
        self._beside = self._beside or self._engine.fork(1)
        known, self._read = self._read, []  # forgotten first, so that an error leaves no text to continue
        if known and tokens[:-1] == known:
            logits = self._beside.step(tokens[-1])
        else:
            self._beside.reset()
            logits = self._beside.read(tokens)
        self._read = list(tokens)
        shifted = logits.astype(np.float64) - float(logits.max())
        logprobs = shifted - np.log(np.exp(shifted).sum())
        likeliest = np.argsort(-logprobs, kind="stable")[:MOST_SHOWN]
        return int(likeliest[0]), dict(zip(likeliest.tolist(), logprobs[likeliest].tolist(), strict=True))
