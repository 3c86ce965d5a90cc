"""Block diffusion by the golden model against its second writings, over random models, prompts and lengths."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_diffusion import (
    BLOCK,
    CONTEXT,
    MASK,
    Choice,
    Rows,
    by_factor,
    by_steps,
    by_threshold,
    engine,
    plain,
    prompt_of,
    small_model,
    stored,
    v1,
    v2_dual,
)

from tritgold.decode.autoregressive import greedy, reference_logits
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.decode.unmasking import Factor, Leftmost, Rule, Steps
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.model import forward

examples = settings(deadline=None, derandomize=True, max_examples=6)
seeds = st.integers(0, 5)
# Less than a block, exactly one, several, and tails; the named ones always, whatever Hypothesis draws besides.
NAMED = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 3]
lengths = st.one_of(st.sampled_from(NAMED), st.integers(1, 20))
thresholds = st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
SUB_BLOCKS = {"fast-dllm-v2", "fast-dllm-v2-dual", "small-block"}


def options(name: str, threshold: float = 0.1, sub_block: int = 4, **changes: Any) -> Diffusion:
    """A preset for blocks of 8. Without its limit of passes where that matters to the test."""
    return preset(name, threshold, **({"sub_block": sub_block} if name in SUB_BLOCKS else {}), **changes)


# ---- no cache at all: the whole text again in each pass ------------------------------------------------------------


@pytest.mark.parametrize("name", ["fast-dllm-v2", "greedy", "iterative", "adaptive", "small-block", "llada", "dream"])
@pytest.mark.parametrize("length", NAMED)
@settings(examples, max_examples=3)
@given(seed=seeds, threshold=thresholds, sub_block=st.sampled_from([1, 2, 4, 8]), data=st.data())
def test_a_full_recompute_gives_the_same_tokens_in_the_same_passes(
    name: str, seed: int, length: int, threshold: float, sub_block: int, data: st.DataObject
) -> None:
    """The engine's own cache policy, its policy of none, and the second writing; with ends of sequence in the text."""
    opened, prompt = small_model(seed), prompt_of(seed, length)
    how = options(name, threshold, sub_block)
    tokens = engine(opened, prompt, 20, how).tokens
    if data.draw(st.booleans(), label="an end"):
        opened = replace(opened, config=replace(opened.config, eos=(data.draw(st.sampled_from(tokens)),)))
    done = engine(opened, prompt, 20, how)
    assert (done.tokens, done.forwards) == plain(opened, prompt, 20, how)
    recomputed = engine(opened, prompt, 20, replace(how, cache="none"))
    assert (recomputed.tokens, recomputed.order, recomputed.reason) == (done.tokens, done.order, done.reason)
    assert MASK not in done.tokens


@examples
@given(seed=seeds, length=lengths, threshold=thresholds)
def test_a_causal_model_with_commit_passes(seed: int, length: int, threshold: float) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    how = Diffusion(attention="causal", sub_block=4, rule=options("iterative", threshold).rule)
    done = engine(opened, prompt, 20, how)
    assert (done.tokens, done.forwards) == plain(opened, prompt, 20, how)


def test_a_cache_spares_reading() -> None:
    """Blocks of 8 after 16: whole text each time, the block, or of it what is not certain yet."""
    opened, prompt = small_model(1), prompt_of(1, 16)

    def fed(name: str, cache: str) -> list[int]:
        return [p.fed for p in engine(opened, prompt, 9, options(name, 1.0, max_passes=None, cache=cache)).passes]

    assert fed("fast-dllm-v2", "none")[:2] == [24, 24]
    assert set(fed("fast-dllm-v2", "prefix")) == {8}
    assert fed("fast-dllm-v2-dual", "dual")[0] == 8
    assert fed("fast-dllm-v2-dual", "dual").count(4) >= 2
    leftmost = options("iterative", rule=Leftmost(), max_passes=None)
    assert [p.fed for p in engine(opened, prompt, 9, leftmost).passes] == [9, 8, 7, 6, 5, 4, 3, 2]
    leftmost = options("small-block", rule=Leftmost())
    assert [p.fed for p in engine(opened, prompt, 9, leftmost).passes] == [5, 4, 3, 2, 5, 4, 3, 2]
    leftmost = Diffusion(attention="causal", rule=Leftmost())
    assert [p.fed for p in engine(opened, prompt, 10, leftmost).passes] == [8, 7, 6, 5, 4, 3, 2, 1, 8]


# ---- the approximate caches, as their programs have them -----------------------------------------------------------


@examples
@given(seed=seeds, length=st.integers(BLOCK + 1, 20), threshold=thresholds, sub_block=st.sampled_from([1, 2, 4, 8]))
def test_the_sub_block_cache_is_that_of_the_released_program(
    seed: int, length: int, threshold: float, sub_block: int
) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    known = v2_dual(opened, prompt, 2, threshold, sub_block)
    assert engine(opened, prompt, len(known), options("fast-dllm-v2-dual", threshold, sub_block)).tokens == known


@examples
@given(seed=seeds, length=lengths, threshold=thresholds)
def test_sub_blocks_as_large_as_the_block_need_no_cache_of_their_own(seed: int, length: int, threshold: float) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    found = [
        engine(opened, prompt, 20, options("fast-dllm-v2", threshold, BLOCK, cache=cache))
        for cache in ("none", "prefix", "dual")
    ]
    assert [(f.tokens, f.order, f.reason) for f in found] == 3 * [(found[0].tokens, found[0].order, found[0].reason)]


def test_the_sub_block_cache_is_approximate() -> None:
    """Or the tests above would not tell it from the exact one."""
    opened, prompt = small_model(158), [3, 4, 5]
    exact, dual = (engine(opened, prompt, 20, options(f"fast-dllm-v2{end}", 1.0)).tokens for end in ("", "-dual"))
    assert exact != dual


@pytest.mark.parametrize("name", ["llada", "dream"])
@pytest.mark.parametrize("cache", ["prefix", "dual"])
@examples
@given(seed=seeds, length=lengths, threshold=thresholds)
def test_full_attention_with_caches_is_that_of_the_released_programs(
    name: str, cache: str, seed: int, length: int, threshold: float
) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    known = v1(opened, prompt, 2, by_threshold(threshold), dual=cache == "dual", shift=name == "dream")
    done = engine(opened, prompt, 2 * BLOCK, options(name, threshold, cache=cache))
    assert done.tokens == known
    assert engine(opened, prompt, 11, options(name, threshold, cache=cache)).tokens == known[:11]


@pytest.mark.parametrize("name", ["llada", "dream"])
@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize(
    ("rule", "choose"),
    [
        (Factor(1.0), by_factor(1.0, False)),
        (Factor(1.95), by_factor(1.95, False)),
        (Factor(1.95, accepts_last=True), by_factor(1.95, True)),
        (Steps(3), by_steps(3)),
        (Steps(5), by_steps(5)),
    ],
    ids=lambda value: "" if callable(value) else repr(value),
)
def test_so_are_the_other_rules_of_the_released_programs(name: str, cache: str, rule: Rule, choose: Choice) -> None:
    for seed, length in ((0, 1), (1, 9), (2, 16)):
        opened, prompt = small_model(seed), prompt_of(seed, length)
        known = v1(opened, prompt, 2, choose, dual=cache == "dual", shift=name == "dream")
        assert engine(opened, prompt, 2 * BLOCK, options(name, cache=cache, rule=rule)).tokens == known


def test_the_rules_differ() -> None:
    """Or the test above would not tell one from another."""
    opened, prompt = small_model(1), prompt_of(1, 9)
    rules = (Factor(1.0), Factor(1.95), Factor(1.95, accepts_last=True), Steps(3), Steps(5))
    orders = [engine(opened, prompt, 2 * BLOCK, options("llada", cache="prefix", rule=rule)).order for rule in rules]
    assert len({tuple(order) for order in orders}) == len(rules)


# ---- greedy decoding as the oracle ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commit", "cache"), [("merged", "prefix"), ("merged", "dual"), ("merged", "none"), ("pass", "prefix")]
)
@examples
@given(seed=seeds, length=lengths, sub_block=st.sampled_from([1, 4, 8]), tokens=st.integers(1, 20))
def test_causal_attention_and_the_leftmost_mask_alone_are_greedy_decoding(
    commit: Any, cache: Any, seed: int, length: int, sub_block: int, tokens: int
) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    how = Diffusion(attention="causal", sub_block=sub_block, rule=Leftmost(), cache=cache, commit=commit)
    logits = reference_logits(opened.weights, opened.config, CONTEXT)
    steps = [step.token for step in greedy(prompt, opened.config, logits, tokens)]
    assert engine(opened, prompt, tokens, how).tokens == steps


@pytest.mark.parametrize(
    ("commit", "cache"),
    [("merged", "prefix"), ("merged", "dual"), ("merged", "none"), ("pass", "prefix"), ("pass", "none")],
)
@pytest.mark.parametrize("left", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 12])
def test_a_causal_text_goes_on_to_the_last_position_as_greedy_decoding_does(commit: Any, cache: Any, left: int) -> None:
    """The last block is cut: token and reason, with budgets that end before, at and after the context."""
    opened, prompt = small_model(2), prompt_of(2, CONTEXT - left)
    how = Diffusion(attention="causal", sub_block=4, rule=Leftmost(), cache=cache, commit=commit)
    for tokens in {1, max(1, left), left + 1, 20}:
        steps = list(greedy(prompt, opened.config, reference_logits(opened.weights, opened.config, CONTEXT), tokens))
        done = engine(opened, prompt, tokens, how)
        assert (done.tokens, done.reason) == ([step.token for step in steps], steps[-1].reason)


@pytest.mark.parametrize("name", ["greedy", "iterative", "adaptive", "small-block"])
def test_every_causal_way_fills_the_context(name: str) -> None:
    opened = small_model(2)
    for left in (0, 1, BLOCK - 1, BLOCK, 12):
        done = engine(opened, prompt_of(2, CONTEXT - left), 20, options(name))
        assert (len(done.tokens), done.reason) == (left + 1, "context_full")


def test_a_block_of_one_token_is_greedy_decoding() -> None:
    opened, prompt = small_model(158), [5, 6, 7]
    config = replace(opened.config, block=1)
    how = preset("fast-dllm-v2", sub_block=1)
    done = block_diffusion(prompt, config, reference_block_model(opened.weights, config, how, 100), 100, how)
    steps = list(greedy(prompt, config, reference_logits(opened.weights, config, CONTEXT), 100))
    assert done.tokens == [step.token for step in steps]
    assert (done.forwards, done.reason) == (len(steps) - 1, steps[-1].reason)


# ---- what is kept, and how much is decided -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block"]
)
@examples
@given(seed=seeds, length=lengths, threshold=thresholds)
def test_what_is_kept_is_what_a_prefill_of_the_final_text_keeps(
    name: str, seed: int, length: int, threshold: float
) -> None:
    """Bit for bit: no key of a mask, none of a token that was still alone among masks.

    Merged commits keep a block when the next is read, so the text is a block longer than what is looked at.
    """
    opened, prompt = small_model(seed), prompt_of(seed, length)
    config, how, cache = opened.config, options(name, threshold), Float32Cache(opened.config, CONTEXT)
    model = reference_block_model(opened.weights, config, how, CONTEXT, cache)
    done = block_diffusion(prompt, config, model, 3 * BLOCK, how)
    kept = (length + BLOCK) // BLOCK * BLOCK if how.attention == "block" else length + 1 + BLOCK
    prefilled = Float32Cache(config, kept)
    text = (prompt + done.tokens)[:kept]
    forward(text, opened.weights, config, prefilled, block=BLOCK if how.attention == "block" else 1)
    cache.length = kept
    assert stored(cache, config) == stored(prefilled, config)


@pytest.mark.parametrize("name", ["fast-dllm-v2", "fast-dllm-v2-dual", "iterative", "small-block", "llada"])
@examples
@given(seed=seeds, length=lengths)
def test_threshold_1_decides_one_token_a_pass_and_0_a_sub_block(name: str, seed: int, length: int) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    slow = engine(opened, prompt, 20, options(name, 1.0, max_passes=None))
    assert all(p.decided == 1 for p in slow.passes if not p.commit)
    fast = engine(opened, prompt, 20, options(name, 0.0))
    per_block = 3 if name.startswith("fast") else 2 if name == "small-block" else 1
    assert max(fast.forwards_per_block) <= per_block


@examples
@given(seed=seeds, length=lengths, passes=st.integers(1, 9), threshold=thresholds)
def test_no_mask_is_left_when_the_passes_are_spent(seed: int, length: int, passes: int, threshold: float) -> None:
    opened, prompt = small_model(seed), prompt_of(seed, length)
    how = options("iterative", threshold, max_passes=passes)
    done = engine(opened, prompt, 20, how)
    assert max(done.forwards_per_block) <= passes
    assert (done.tokens, done.forwards) == plain(opened, prompt, 20, how)
    assert MASK not in done.tokens


# ---- the model that the engine uses --------------------------------------------------------------------------------


@pytest.mark.parametrize(("attention", "sees"), [("block", 4), ("causal", 1), ("full", CONTEXT)])
def test_rows_are_replaced_in_place_and_those_behind_stay_visible(attention: Any, sees: int) -> None:
    opened, text, rows = small_model(3), prompt_of(3, 12), Rows()
    how = Diffusion(attention=attention, block=4, commit="none")
    model = reference_block_model(opened.weights, opened.config, how, 12)
    cache = rows
    for start, stop, end in ((0, 12, 12), (4, 6, 8), (9, 10, 12), (3, 12, 12)):
        found = model([(t + start) % 256 for t in text[start:stop]], start, end, [0, stop - start - 1])
        cache.length, cache.end = start, end
        shifted = [(t + start) % 256 for t in text[start:stop]]
        known = forward(shifted, opened.weights, opened.config, cache, block=sees)
        assert np.array_equal(found, known[[0, -1]])
    assert model(text[:2], 0, 2, []).shape == (0, 259)


def test_every_preset_repeats_itself() -> None:
    for name in PRESETS:
        found = [engine(small_model(2), [5, 6, 7], 12, options(name, 0.3)) for _ in range(2)]
        assert found[0] == found[1]
