"""Several sequences decoded together: each is what it would be alone, in whatever order they stand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_diffusion import engine, prompt_of, small_model
from refusals import refusal

from tritgold.checkpoint import Checkpoint
from tritgold.decode.block_diffusion import block_diffusion_batch
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.decode.diffusion_record import DiffusedBatch
from tritgold.decode.sampling import Sampling


def options(name: str, **changes: Any) -> Diffusion:
    block = {"sub_block": 4} if name.startswith("fast") or name == "small-block" else {}
    return preset(name, 0.2, **block, **changes)


def batch(opened: Checkpoint, prompts: list[list[int]], how: Diffusion, tokens: int = 18) -> DiffusedBatch:
    models = [reference_block_model(opened.weights, opened.config, how, 60) for _ in prompts]
    return block_diffusion_batch(prompts, opened.config, models, tokens, how)


@pytest.mark.parametrize("name", PRESETS)
@settings(deadline=None, derandomize=True, max_examples=5)
@given(
    seed=st.integers(0, 5),
    lengths=st.lists(st.sampled_from([1, 7, 8, 9, 16, 19]), min_size=2, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_a_batch_is_its_sequences_alone_in_any_order(name: str, seed: int, lengths: list[int], order: Any) -> None:
    opened = small_model(seed)
    prompts = [prompt_of(seed + n, length) for n, length in enumerate(lengths)]
    together = batch(opened, prompts, options(name))
    alone = [engine(opened, prompt, 18, options(name)) for prompt in prompts]
    assert together.results == alone
    shuffled = list(range(len(prompts)))
    order.shuffle(shuffled)
    permuted = batch(opened, [prompts[n] for n in shuffled], options(name))
    assert permuted.results == [together.results[n] for n in shuffled]
    assert permuted.forwards == together.forwards
    forwards = [result.forwards for result in alone]
    assert max(forwards) <= together.forwards <= sum(forwards)


@pytest.mark.parametrize(
    ("name", "noise"), [("fast-dllm-v2", {"top_p": 0.9}), ("llada", {}), ("iterative", {"top_k": 50})]
)
def test_what_is_drawn_does_not_depend_on_the_batch(name: str, noise: dict[str, Any]) -> None:
    opened, prompts = small_model(1), [prompt_of(n, 5 + 4 * n) for n in range(3)]
    how = [options(name, sampling=Sampling(temperature=8.0, seed=seed, **noise)) for seed in (1, 2)]
    assert batch(opened, prompts, how[0]).results == [engine(opened, prompt, 18, how[0]) for prompt in prompts]
    assert batch(opened, prompts, how[0]).results != batch(opened, prompts, how[1]).results


def test_sequences_of_the_same_length_share_their_passes() -> None:
    opened, prompt = small_model(1), prompt_of(1, 5)
    together = batch(opened, [prompt, prompt], options("fast-dllm-v2"))
    assert together.forwards == together.results[0].forwards
    assert batch(opened, [], options("greedy")) == DiffusedBatch([], 0)


def test_one_prompt_that_cannot_be_read_is_refused_before_any_is() -> None:
    opened = small_model(1)
    assert refusal(lambda: batch(opened, [[1, 2], []], options("greedy"))).kind == "no-tokens"
