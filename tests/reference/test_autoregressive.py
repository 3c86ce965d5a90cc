"""Greedy decoding: the lowest id of a tie, exact budgets, and the three reasons to stop."""

from dataclasses import replace

import numpy as np
import pytest

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import greedy
from tritgold.errors import ContextError

CONFIG = ModelConfig(
    vocab=10, hidden=8, inter=12, layers=1, heads=2, kv_heads=1, head_dim=4, context=8, norm_eps=1e-5,
    rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply", eos=(9,),
)  # fmt: skip


class Scripted:
    """A model that says one token after another; remembers what it was given to read."""

    def __init__(self, *tokens: int) -> None:
        self.tokens, self.read = list(tokens), list[list[int]]()

    def __call__(self, unseen: list[int]) -> np.ndarray:
        self.read.append(unseen)
        return np.eye(10)[self.tokens[len(self.read) - 1]]


def outcome(model: Scripted, prompt: list[int], budget: int) -> tuple[list[int], str | None]:
    steps = list(greedy(prompt, CONFIG, model, budget))
    assert all(step.reason is None for step in steps[:-1])
    return [step.token for step in steps], steps[-1].reason


def test_length_is_exact_and_each_token_is_read_once() -> None:
    model = Scripted(3, 4, 5)
    assert outcome(model, [1, 2], 3) == ([3, 4, 5], "length")
    assert model.read == [[1, 2], [3], [4]]  # the last token is never read: its logits are not asked for


def test_end_of_sequence_stops_and_is_yielded() -> None:
    assert outcome(Scripted(3, 9, 5), [1], 5) == ([3, 9], "stop")
    assert outcome(Scripted(9), [1], 1) == ([9], "stop")


@pytest.mark.parametrize(("prompt", "generated"), [(6, 3), (7, 2), (8, 1)])
def test_context_full_after_exactly_the_positions_there_are(prompt: int, generated: int) -> None:
    model = Scripted(*[3] * 9)
    assert outcome(model, [1] * prompt, 100) == ([3] * generated, "context_full")
    assert sum(len(r) for r in model.read) == 8


def test_a_prompt_longer_than_the_context_is_refused_at_the_call() -> None:
    model = Scripted(3)
    with pytest.raises(ContextError):
        greedy([1] * 9, CONFIG, model, 1)
    with pytest.raises(ContextError):
        greedy([1], CONFIG, model, 0)
    assert model.read == []


def test_the_lowest_id_wins_a_tie() -> None:
    steps = greedy([1], replace(CONFIG, eos=()), lambda _: np.array([0, 5, 5.0, 1]), 1)
    assert next(steps).token == 1
