"""An engine without a model, for what the scheduler does with one."""

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import NonFiniteError

CONTEXT = 300


class Counting:
    """An engine without a model: the next token is the sum of all that are read, modulo 97; 96 after 13 overflows."""

    def __init__(self, sequences: int, capacity: int = CONTEXT) -> None:
        shape = {"vocab": 97, "hidden": 4, "inter": 4, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 4}
        rules = {"norm_eps": 1e-5, "rope_theta": 1e4, "activation": "relu2", "sub_norms": True, "tied_head": True}
        self.config = ModelConfig(**shape, **rules, context=CONTEXT, scale_rule="multiply")  # type: ignore[arg-type]
        self.sequences, self.capacity = sequences, capacity
        self._read: list[list[int]] = [[] for _ in range(sequences)]

    def reset(self) -> None:
        self._read = [[] for _ in self._read]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self._read))

    def truncate(self, length: int, sequence: int) -> None:
        assert length <= len(self._read[sequence])
        del self._read[sequence][length:]

    def move(self, start: int, to: int, count: int, sequence: int) -> None:
        assert to <= start <= len(self._read[sequence]) - count
        self._read[sequence][to : to + count] = self._read[sequence][start : start + count]

    def prefill(self, tokens: list[int], sequence: int = 0) -> np.ndarray:
        assert len(self._read[sequence]) + len(tokens) <= self.capacity
        self._read[sequence] += tokens
        first = len(self._read[sequence]) - len(tokens) + 1
        sums = [sum(self._read[sequence][:n]) % 97 for n in range(first, first + len(tokens))]
        return np.eye(97, dtype=np.float32)[sums]

    def read(self, tokens: list[int], sequence: int = 0) -> np.ndarray:
        return self.prefill(tokens, sequence)[-1]

    def step_all(self, tokens: list[int]) -> np.ndarray:
        if any(read[-1:] == [13] and token == 96 for read, token in zip(self._read, tokens, strict=True)):
            raise NonFiniteError("are not finite", kind="activation-non-finite")
        return np.stack([self.read([token], n) for n, token in enumerate(tokens)])


def counted(prompt: list[int], count: int) -> list[int]:
    """What Counting says."""
    text = [token % 97 for token in prompt]
    for _ in range(count):
        text.append(sum(text) % 97)
    return text[len(prompt) :]
