"""Several prompts on the JAX engine: up to ``sequences`` texts are decoded together, one token of each per pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import Limits, possible
from tritgold.decode.sampling import Sampling, choose
from tritgold.decode.serving_options import Counters, Ending, Outcome
from tritgold.errors import NonFiniteError

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine


@dataclass
class _Text:
    """ids: prompt and generated; held: positions in the cache; logits: of the next token; reason: why it ended."""

    prompt: list[int]
    limits: Limits
    ids: list[int]
    held: int = 0
    logits: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reason: Ending | None = None
    error: NonFiniteError | None = None

    def choose(self, config: ModelConfig, sampling: Sampling) -> None:
        """Append the next token; sets ``reason`` if it is the last one."""
        token = choose(possible(self.logits, config), sampling, self.ids)
        self.reason = self.limits.reason(token, len(self.ids) - len(self.prompt) + 1, len(self.ids))
        self.ids.append(token)


def decode_together(
    engine: "XlaEngine", prompts: list[list[int]], limits: Sequence[Limits], sampling: Sampling
) -> tuple[list[Outcome], Counters]:
    """A text for each prompt, in order, with the tokens that it would get alone. An overflow fails only its own text.

    engine: with room for the longest text; its cache is reset. limits: of each prompt, from ``check_limits``.
    """
    counters = Counters(requests=len(prompts), prefilled=sum(map(len, prompts)))
    texts = [_Text(prompt, limit, [*prompt]) for prompt, limit in zip(prompts, limits, strict=True)]
    for begin in range(0, len(texts), engine.sequences):
        engine.reset()
        _decode(engine, texts[begin : begin + engine.sequences], sampling, counters)
    return [Outcome(text.ids[len(text.prompt) :], text.reason or "failed", 0, text.error) for text in texts], counters


def _decode(engine: "XlaEngine", texts: list[_Text], sampling: Sampling, counters: Counters) -> None:
    _read(engine, texts, lambda text: text.prompt, counters)
    while running := [text for text in texts if text.reason is None]:
        for text in running:
            _guarded(text, lambda text=text: text.choose(engine.config, sampling))  # type: ignore[misc]
        counters.generated += sum(text.error is None for text in running)
        if any(text.reason is None for text in texts) and not _step_all(engine, texts, counters):
            _read(engine, texts, lambda text: text.ids[-1:], counters)


def _step_all(engine: "XlaEngine", texts: list[_Text], counters: Counters) -> bool:
    """One pass for all. Texts that have ended take part with their last token; False if one of them cannot."""
    if any(text.error is not None or text.held == engine.capacity for text in texts):
        return False
    idle = [0] * (engine.sequences - len(texts))  # for sequences of the engine without a text
    try:
        rows = engine.step_all([*(text.ids[-1] for text in texts), *idle])
    except NonFiniteError:  # in one of the texts: nothing has been stored, and each text is then read alone
        return False
    counters.forwards += 1
    for text, row in zip(texts, rows, strict=False):
        text.logits, text.held = row, text.held + 1
    return True


def _read(engine: "XlaEngine", texts: list[_Text], tokens: Callable[[_Text], list[int]], counters: Counters) -> None:
    """One pass for each text that has not ended."""
    for sequence, text in enumerate(texts):
        if text.reason is None:
            new = tokens(text)

            def read(text: _Text = text, new: list[int] = new, sequence: int = sequence) -> None:
                text.logits = engine.read(new, sequence=sequence)
                text.held += len(new)

            _guarded(text, read)
            counters.forwards += 1


def _guarded(text: _Text, act: Callable[[], None]) -> None:
    try:
        act()
    except NonFiniteError as error:
        text.reason, text.error = "failed", error
