"""Autoregressive decoding: greedy ties, exact budgets, the three reasons to stop, and seeds that mean one text."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import generate, greedy, reference_logits
from tritgold.decode.sampling import Sampling
from tritgold.errors import ContextError, NonFiniteError
from tritgold.golden import embedded_model

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
    steps = greedy([1], replace(CONFIG, eos=()), lambda _: np.array([0, 5, 5.0, 1, *[0] * 6]), 1)
    assert next(steps).token == 1


@pytest.mark.parametrize(
    ("stop", "said", "reason"), [(None, [3, 9], "stop"), ((), [3, 9, 4], "length"), ((4, 3), [3], "stop")]
)
def test_a_stop_set_stands_instead_of_the_end_of_sequence(
    stop: tuple[int, ...] | None, said: list[int], reason: str
) -> None:
    steps = list(generate([1], CONFIG, Scripted(3, 9, 4), 3, stop=stop))
    assert ([step.token for step in steps], steps[-1].reason) == (said, reason)


def test_a_stop_token_outside_the_vocabulary_is_refused_at_the_call() -> None:
    model = Scripted(3)
    for token in (10, -1):
        with pytest.raises(ContextError, match="stop"):
            generate([1], CONFIG, model, 1, stop=[token])
    assert model.read == []


def test_what_pads_the_vocabulary_is_never_chosen() -> None:
    """Logits of 10 tokens, all negative, and six columns of padding that hold 0."""
    padded = np.concatenate([np.arange(-10.0, 0.0), np.zeros(6)])
    assert next(greedy([1], CONFIG, lambda _: padded, 1)).token == 9
    warm = Sampling(temperature=100.0, seed=1)
    steps = generate([1] * 3, CONFIG, lambda _: padded, 6, warm, stop=())
    assert max(step.token for step in steps) < 10


def test_logits_that_are_not_finite_end_in_an_error_not_in_a_token() -> None:
    with pytest.raises(NonFiniteError):
        list(greedy([1], CONFIG, lambda _: np.full(CONFIG.vocab, np.nan), 1))


def hashed() -> Callable[[list[int]], np.ndarray]:
    """A model whose next token depends on all that it has read, and on where."""
    read: list[int] = []

    def logits(unseen: list[int]) -> np.ndarray:
        read.extend(unseen)
        return np.cos(np.arange(10.0) * (1 + sum((i + 1) * t for i, t in enumerate(read))))

    return logits


def sampled(prompt: list[int], budget: int, seed: int) -> list[int]:
    config = replace(CONFIG, context=64, eos=())
    return [s.token for s in generate(prompt, config, hashed(), budget, Sampling(0.8, 8, 0.95, 1.1, seed))]


def test_a_seed_is_a_text() -> None:
    text = sampled([1, 2], 30, seed=4)
    assert sampled([1, 2], 30, seed=4) == text
    assert sampled([1, 2], 30, seed=5) != text
    assert sampled([1, 2], 11, seed=4) == text[:11], "the budget changes no token before it"


def test_a_text_that_is_continued_later_continues_with_the_same_tokens() -> None:
    text = sampled([1, 2], 30, seed=4)
    for cut in (1, 7, 29):
        assert sampled([1, 2, *text[:cut]], 30 - cut, seed=4) == text[cut:]


def test_sequences_decoded_in_turns_are_the_sequences_decoded_alone() -> None:
    config = replace(CONFIG, context=64, eos=())
    runs = [generate([1, seed], config, hashed(), 20, Sampling(0.8, 8, 0.95, 1.1, seed)) for seed in range(4)]
    in_turns = list(zip(*runs, strict=True))
    for seed in range(4):
        assert [step[seed].token for step in in_turns] == sampled([1, seed], 20, seed)


def test_the_golden_model_sampled_at_temperature_0_is_greedy_and_otherwise_repeatable() -> None:
    with embedded_model("seeded") as path:
        checkpoint = open_checkpoint(path)

        def text(sampling: Sampling) -> list[int]:
            logits = reference_logits(checkpoint.weights, checkpoint.config, 20)
            return [s.token for s in generate([256, 72, 105], checkpoint.config, logits, 6, sampling)]

        logits = reference_logits(checkpoint.weights, checkpoint.config, 20)
        said = [step.token for step in greedy([256, 72, 105], checkpoint.config, logits, 6)]
        assert text(Sampling(seed=3)) == said == text(Sampling(temperature=2, top_k=1))
        assert text(Sampling(temperature=2, seed=3)) == text(Sampling(temperature=2, seed=3)) != said


@pytest.mark.parametrize("budget", [0, -1, 1.5, float("nan"), "3", None, True])
def test_a_budget_is_an_integer_from_1_on(budget: Any) -> None:
    assert refusal(lambda: generate([1], CONFIG, lambda _: np.zeros(10), budget)).kind == "max-tokens"


@pytest.mark.parametrize("stop", [[1.5], "ab", 5, [10], [-1], [[1]], [True]])
def test_what_ends_a_text_are_ids(stop: Any) -> None:
    assert refusal(lambda: generate([1], CONFIG, lambda _: np.zeros(10), 3, stop=stop)).kind == "token-id"


@pytest.mark.parametrize("logits", [np.zeros(9), np.zeros((1, 10)), np.zeros(10, complex), None])
def test_logits_of_another_shape_are_the_engine_s_fault(logits: Any) -> None:
    assert refusal(lambda: list(generate([1], CONFIG, lambda _: logits, 3))).kind == "logits-shape"


def test_no_sampling_is_no_sampling() -> None:
    none: Any = None
    assert refusal(lambda: generate([1], CONFIG, lambda _: np.zeros(10), 3, none)).kind == "sampling-option"


def test_the_mask_of_a_block_diffusion_model_never_comes() -> None:
    config = replace(CONFIG, mask=5, block=4)
    logits = np.arange(10.0) == 5
    assert [step.token for step in generate([1], config, lambda _: logits.astype(float), 3)] == [0, 0, 0]


def test_ids_beyond_64_bits_are_ids_all_the_same() -> None:
    error = refusal(lambda: generate([1, 10**23], CONFIG, lambda _: np.zeros(10), 3))
    assert (error.kind, error.got) == ("token-id", "an integer of 77 bits")
    assert refusal(lambda: generate([], CONFIG, lambda _: np.zeros(10), 3)).got == "none"
