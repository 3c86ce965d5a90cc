"""Block diffusion: ties, confidence, thresholds of 1, and logits of another shape, through the engine."""

from typing import Any

import numpy as np
import pytest
from refusals import refusal
from scripted_model import CONFIG, MASK, Scripted

from tritgold.decode.block_diffusion import block_diffusion, block_diffusion_batch
from tritgold.decode.block_model import BlockModel
from tritgold.decode.diffusion_presets import preset


def sure_of(p: float, token: int = 20) -> BlockModel:
    """A model that says one token everywhere with this probability, else the next id; its logits are padded."""

    def model(tokens: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        logits = np.full((len(rows), 64 + 3), -1e4)
        logits[:, token : token + 2] = np.log(p), np.log(1 - p)
        logits[:, 64:] = 99  # no tokens of the model
        return logits

    return model


@pytest.mark.parametrize(("ties", "order"), [("first", [0, 1, 2]), ("last", [2, 1, 0])])
def test_which_of_equally_sure_positions_goes_first(ties: Any, order: list[int]) -> None:
    done = block_diffusion([1], CONFIG, sure_of(0.75), 3, preset("fast-dllm-v2", 1.0, sub_block=4, position_ties=ties))
    assert (done.tokens, done.order) == ([20, 20, 20], order)


@pytest.mark.parametrize(("ties", "token"), [("first", 20), ("last", 21)])
@pytest.mark.parametrize("name", ["fast-dllm-v2", "iterative"])
def test_which_of_equal_logits_is_taken_in_a_block_and_behind_the_prefill(name: str, ties: Any, token: int) -> None:
    options = preset(name, block=4, sub_block=4, token_ties=ties)
    assert block_diffusion([1] * 4, CONFIG, sure_of(0.5), 4, options).tokens == [token] * 4


@pytest.mark.parametrize(("confidence", "order"), [("exact", [0, 0, 0]), ("schraudolph", [0, 1, 2])])
def test_a_fast_confidence_decides_fewer(confidence: Any, order: list[int]) -> None:
    """0.9 reads 0.8974 in it."""
    options = preset("fast-dllm-v2", 0.8985, sub_block=4, confidence=confidence)
    assert block_diffusion([1], CONFIG, sure_of(0.9), 3, options).order == order


def test_of_two_passes_that_are_equally_sure_the_first_fills_what_is_left() -> None:
    calls = []

    def model(tokens: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        calls.append(rows)
        return sure_of(0.75, 10 * len(calls))(tokens, start, end, rows)

    done = block_diffusion([1], CONFIG, model, 5, preset("iterative", block=4, max_passes=2))
    assert (done.tokens, done.order) == ([10, 20, 30, 20, 20], [-1, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("name", "order"), [("llada", [0, 0, 0, 0]), ("dream", [0, 0, 0, 0]), ("iterative", [-1, 0, 1, 2])]
)
def test_at_threshold_1_what_is_certain_is_decided_where_reaching_it_is_enough(name: str, order: list[int]) -> None:
    """Saturated logits have a probability of exactly 1."""
    done = block_diffusion([1], CONFIG, Scripted(), 4, preset(name, 1.0, block=4))
    assert done.order == order


@pytest.mark.parametrize(
    "wrong",
    [
        lambda logits: logits[:, :63],
        lambda logits: np.concatenate([logits, logits]),
        lambda logits: logits[0] if len(logits) else logits[:, 0],
        lambda logits: logits * 1j,
    ],
)
@pytest.mark.parametrize("name", ["fast-dllm-v2", "iterative", "llada"])
def test_logits_of_another_shape_are_the_engine_s_fault(name: str, wrong: Any) -> None:
    def model(*given: Any) -> np.ndarray:
        found: np.ndarray = wrong(sure_of(0.75)(*given))
        return found

    options = preset(name, block=4, sub_block=4)
    assert refusal(lambda: block_diffusion([1, 2, 3], CONFIG, model, 4, options)).kind == "logits-shape"


def test_a_prompt_of_numpy_and_budgets_that_are_none() -> None:
    def decode(prompt: Any, budget: int = 3) -> list[int]:
        return block_diffusion(prompt, CONFIG, sure_of(0.75), budget, preset("fast-dllm-v2", sub_block=4)).tokens

    assert decode(np.array([1, 2, 3])) == [20, 20, 20]
    assert refusal(lambda: decode(np.array([1, MASK]))).kind == "mask-in-prompt"
    for budget in (0, -1, True):
        assert refusal(lambda budget=budget: decode([1], budget)).kind == "max-tokens"
    options = preset("fast-dllm-v2", sub_block=4)
    assert refusal(lambda: block_diffusion_batch([[1], [2]], CONFIG, [sure_of(0.75)], 3, options)).kind == "models"
