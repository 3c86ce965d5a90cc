"""Blocks filled by a compiled program are those of the golden decoder: token for token, pass for pass."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import LLAMA, MIXED, make_weights

from tritgold.checkpoint import open_checkpoint
from tritgold.decode import block_diffusion as golden
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_presets import preset as golden_preset
from tritgold.errors import ConfigError, ContextError, NonFiniteError
from tritgold.golden import embedded_model
from tritgold.model import forward
from tritgold_xla import XlaEngine
from tritgold_xla.decode.block_diffusion import block_by_block, block_diffusion
from tritgold_xla.decode.block_program import fill
from tritgold_xla.decode.diffusion_options import PRESETS, BlockOptions, preset

SMALL = replace(LLAMA, mask=5, block=8, eos=(7, 9), context=64)


@pytest.fixture(scope="module")
def small():
    weights = make_weights(SMALL)
    return XlaEngine(SMALL, weights), weights


@pytest.fixture(scope="module")
def kjv():
    with embedded_model("kjv-dlm") as path:
        checkpoint = open_checkpoint(path)
        yield XlaEngine(checkpoint.config, checkpoint.weights, capacity=256), checkpoint.weights


def expected(weights, config, prompt, tokens, options):
    model = reference_block_model(weights, config, options, len(prompt) + tokens)
    return golden.block_diffusion(prompt, config, model, tokens, options)


def sub_block_of(name, size=4):
    """For blocks of 8."""
    return {} if preset(name).sub_block is None else {"sub_block": size}


def assert_same(got, wanted):
    assert got.tokens == wanted.tokens
    assert got.order == wanted.order
    assert (got.reason, got.commits) == (wanted.reason, wanted.commits)
    assert got.passes == [done.decided for done in wanted.passes]
    assert got.read == wanted.read


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 19])
@pytest.mark.parametrize("name", PRESETS)
def test_equals_golden_over_prompt_lengths(small, name, length):
    engine, weights = small
    rng = np.random.default_rng(length + 100)
    prompt = [int(t) for t in rng.choice([t for t in range(101) if t not in (5, 7, 9)], length)]
    for threshold in (0.05, 0.9):  # with these prompts no rounding tie is broken on the way
        options = golden_preset(name, threshold, **sub_block_of(name))
        wanted = expected(weights, SMALL, prompt, 20, options)
        assert_same(block_diffusion(engine, prompt, 20, preset(name, threshold, **sub_block_of(name))), wanted)


@pytest.mark.parametrize("name", PRESETS)
def test_block_by_block_is_the_same_text_and_may_be_given_up(small, name):
    engine, _ = small
    prompts = ([first, 2, 3] for first in range(10, 40))
    found = ((prompt, block_diffusion(engine, prompt, 30, preset(name))) for prompt in prompts)
    prompt, whole = next((prompt, whole) for prompt, whole in found if len(whole.tokens) > 16)
    blocks = block_by_block(engine, prompt, 30, preset(name))
    first, second = next(blocks), next(blocks)
    assert len(first) <= 1, "what the prefill decides"
    assert len(first) < len(second) < 30
    assert whole.tokens[: len(second)] == second
    assert second[: len(first)] == first
    blocks.close()
    assert engine.length == 0
    assert block_diffusion(engine, prompt, 30, preset(name)) == whole


@pytest.mark.parametrize("name", PRESETS)
def test_equals_golden_on_a_trained_model(kjv, name):
    engine, weights = kjv
    prompt = [int(t) for t in np.random.default_rng(1).integers(10, 1500, 21)]
    for threshold in (0.4, 0.9):
        wanted = expected(weights, engine.config, prompt, 50, golden_preset(name, threshold))
        assert_same(block_diffusion(engine, prompt, 50, preset(name, threshold)), wanted)


@pytest.mark.parametrize("name", ["fast-dllm-v2", "iterative"])
@pytest.mark.parametrize("length", [40, 55, 56, 60, 63, 64])
def test_the_end_of_the_context(small, name, length):
    engine, weights = small
    prompt = [1 + n % 4 for n in range(length)]
    sub_block = {"sub_block": 4} if name == "fast-dllm-v2" else {}
    options = golden_preset(name, 0.9, **sub_block)
    wanted = expected(weights, SMALL, prompt, 30, options)
    assert_same(block_diffusion(engine, prompt, 30, preset(name, 0.9, **sub_block)), wanted)


def test_a_block_compiles_once_whatever_prompt_threshold_and_budget(small):
    engine, _ = small
    block_diffusion(engine, [1, 2, 3], 9, preset("adaptive", 0.9))
    once = fill._cache_size()
    for length, tokens, threshold in [(5, 20, 0.3), (9, 1, 0.99), (30, 30, 0.5)]:
        block_diffusion(engine, [1] * length, tokens, preset("adaptive", threshold))
        block_diffusion(engine, [1] * length, tokens, preset("iterative", threshold))
    assert fill._cache_size() == once


def test_threshold_1_decides_one_token_a_pass(kjv):
    engine, _ = kjv
    done = block_diffusion(engine, [20, 30, 40], 24, preset("fast-dllm-v2", 1.0))
    assert set(done.passes) == {1}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"mask": 101}, "mask-id"),
        ({"mask": 7}, "mask-id"),
        ({"block": 0}, "block"),
        ({"block": 65}, "block"),
        ({"sub_block": 3}, "sub-block"),
        ({"thresholds": ()}, "threshold"),
        ({"thresholds": (1.5,)}, "threshold"),
        ({"thresholds": (0.1, 0.2, 0.3, 0.4)}, "threshold"),
        ({"thresholds": (True,)}, "threshold"),
        ({"thresholds": ("0.9",)}, "threshold"),
        ({"max_passes": 0}, "max-passes"),  # was taken for none given
        ({"max_passes": -1}, "max-passes"),
        ({"max_passes": True}, "max-passes"),
        ({"max_passes": 2.0}, "max-passes"),
        ({"max_passes": 2**40}, "max-passes"),  # no int32 of the program
        ({"mask": 5.0}, "mask-id"),
        ({"block": True}, "block"),
        ({"block": 8.0}, "block"),
        ({"sub_block": 4.0}, "sub-block"),
        ({"sub_block": 4, "max_passes": 2}, "diffusion-option"),  # masks came out as text
        ({"causal": True, "sub_block": 4}, "sub-block"),  # was not looked at
    ],
)
def test_options_that_are_not_usable(small, options, kind):
    engine, _ = small
    with pytest.raises(ConfigError, match=kind):
        block_diffusion(engine, [1], 4, replace(BlockOptions(causal=False, thresholds=(0.9,)), **options))


def test_a_block_longer_than_a_chunk_is_read_whole():
    # In chunks of 128 its first tokens would not see its last ones.
    config = replace(SMALL, context=320)
    weights, tokens = make_weights(config), [1 + 7 * n % 90 for n in range(150)]  # no tie is broken
    engine = XlaEngine(config, weights)
    golden_logits = forward(tokens, weights, config, block=150)[-1]
    off = np.abs(engine.read(tokens, block=150) - golden_logits).max() / np.abs(golden_logits).max()
    assert off < 50 * 2.0**-24, "cut at 128"


def test_causal_blocks_of_which_two_are_no_chunk_are_refused():
    # A pass writes two blocks of the cache, and its last rows would be moved down over others.
    wide = XlaEngine(replace(SMALL, context=320), make_weights(replace(SMALL, context=320)))
    with pytest.raises(ConfigError, match=r"block.*1 to 64"):
        block_diffusion(wide, [1], 4, preset("iterative", block=65))


def test_other_refusals(small):
    engine, _ = small
    for prompt, tokens, kind in [([], 4, "no-tokens"), ([1, 5], 4, "mask-in-prompt"), ([1], 0, "max-tokens")]:
        with pytest.raises(ContextError, match=kind):
            block_diffusion(engine, prompt, tokens, preset("iterative"))
    with pytest.raises(ConfigError, match="unknown-preset"):
        preset("llada")
    for threshold in (1.5, "0.9", True, float("nan")):
        with pytest.raises(ConfigError, match=r"\[threshold\]"):
            preset("iterative", threshold)
    plain = XlaEngine(MIXED, make_weights(MIXED))
    with pytest.raises(ConfigError, match="no-diffusion"):
        block_diffusion(plain, [1], 4, preset("iterative"))


def test_activations_that_are_not_finite_are_refused():
    weights = make_weights(SMALL)
    table = weights.embedding.array.copy()
    table[5] = np.inf  # the mask itself
    engine = XlaEngine(SMALL, replace(weights, embedding=replace(weights.embedding, array=table)))
    with pytest.raises(NonFiniteError, match="block at position"):
        block_diffusion(engine, [1, 2, 3], 8, preset("iterative"))
    assert engine.length == 0


@pytest.mark.parametrize("name", ["fast-dllm-v2", "iterative"])
def test_logits_that_are_not_finite_are_refused(small, name):
    _, weights = small
    table = weights.head.array.copy()
    table[66] = np.nan
    engine = XlaEngine(SMALL, replace(weights, head=replace(weights.head, array=table)))
    sub_block = {"sub_block": 4} if name == "fast-dllm-v2" else {}
    engine.read = lambda tokens, block=None: np.zeros(SMALL.vocab, np.float32)  # what refuses them before a block
    with pytest.raises(NonFiniteError, match="block at position"):
        block_diffusion(engine, [1, 2, 3], 8, preset(name, 0.9, **sub_block))
