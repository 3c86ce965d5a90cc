"""The sub-block cache (Fast-dLLM v2's DualCache): the golden decoder's tokens in its passes, reading what it reads."""

from dataclasses import replace
from functools import wraps
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

from tritgold.decode.block_diffusion import block_diffusion as golden
from tritgold.decode.block_diffusion import block_diffusion_batch
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_presets import preset as golden_preset
from tritgold.errors import ConfigError
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold_xla import XlaEngine
from tritgold_xla.decode import block_diffusion as decoder
from tritgold_xla.decode import block_program
from tritgold_xla.decode.block_diffusion import block_diffusion
from tritgold_xla.decode.block_reads import block_window, causal_window, needs_wide
from tritgold_xla.decode.diffusion_options import BlockOptions, BlockProgram, preset, resolved
from tritgold_xla.runtime.flags import jit

DUAL = "fast-dllm-v2-dual"
SMALL = replace(LLAMA, layers=2, mask=5, block=8, eos=(7, 9), context=64)
WEIGHTS = make_weights(SMALL)
LENGTHS = (1, 3, 7, 8, 9, 16, 19)  # less than a block, whole blocks, and tails in either half
THRESHOLDS = (0.4, 0.7, 1.0)  # what most predictions pass, some, none


@pytest.fixture(scope="module")
def engine():
    return XlaEngine(SMALL, WEIGHTS, formulation="float-dot")  # the quickest to compile


def prompt_of(length, seed=0):
    """No masks, no ends; chosen where no rounding tie is broken on the way."""
    usable = [token for token in range(SMALL.vocab) if token not in (SMALL.mask, *SMALL.eos)]
    return np.random.default_rng([length, seed]).choice(usable, length).tolist()


def wanted_of(prompt, threshold, sub_block=4, scheme="f32", name=DUAL):
    options = golden_preset(name, threshold, sub_block=sub_block)
    cache = kv_scheme(scheme).cache(SMALL, SMALL.context)
    model = reference_block_model(WEIGHTS, SMALL, options, SMALL.context, cache)
    return golden(prompt, SMALL, model, 20, options)


def facts(done):
    """What both records have, by the same names."""
    passes = done.passes if isinstance(done.passes, list) else [one.decided for one in done.passes]
    return done.tokens, done.order, done.reason, done.commits, passes, done.read


def differing(engine, sub_block, scheme="f32", lengths=LENGTHS, thresholds=THRESHOLDS):
    """Of all lengths and thresholds those that are not the golden decoder's."""
    wrong = []
    for length, threshold in product(lengths, thresholds):
        prompt = prompt_of(length)
        found = block_diffusion(engine, prompt, 20, preset(DUAL, threshold, sub_block=sub_block))
        if facts(found) != facts(wanted_of(prompt, threshold, sub_block, scheme)):
            wrong.append((length, threshold))
    return wrong


@pytest.mark.parametrize("sub_block", [2, 4])
def test_every_pass_is_the_golden_decoder_s(engine, sub_block):
    assert differing(engine, sub_block) == []
    assert differing(engine, sub_block, lengths=[44, 55, 63], thresholds=[0.7]) == [], "at the end of the context"


def test_rows_are_replaced_in_a_kv_cache_with_scales():
    stored = XlaEngine(SMALL, WEIGHTS, kv_cache="int8", formulation="float-dot")
    assert differing(stored, 4, "int8", (3, 9, 16)) == []


def test_texts_one_after_the_other_are_those_of_the_golden_batch(engine):
    prompts = [prompt_of(length, seed=1) for length in (3, 12, 8)]
    options = golden_preset(DUAL, 0.7, sub_block=4)
    models = [reference_block_model(WEIGHTS, SMALL, options, 40) for _ in prompts]
    together = block_diffusion_batch(prompts, SMALL, models, 20, options).results
    mine = [block_diffusion(engine, prompt, 20, preset(DUAL, 0.7, sub_block=4)) for prompt in prompts]
    assert list(map(facts, mine)) == list(map(facts, together))


def test_most_passes_read_the_sub_block_alone(engine):
    """And no program is compiled for it: one has both passes, whatever the prompt, the threshold and the budget."""
    options = preset(DUAL, 1.0, sub_block=4)
    done = block_diffusion(engine, prompt_of(17), 3, options)
    assert done.read == [8, 4, 4], "the token before the sub-block is known, so only its first pass reads the block"
    once = block_program.fill._cache_size()
    for length, tokens, threshold in [(5, 20, 0.3), (9, 1, 0.99), (30, 30, 0.0)]:
        block_diffusion(engine, prompt_of(length), tokens, replace(options, thresholds=(threshold,)))
    assert block_program.fill._cache_size() == once


# ---- faults that the comparison above must see ---------------------------------------------------------------------


def never_again(masked, steps, program):
    """The block is read once, and to store it: rows of the other sub-blocks stay as old as they are."""
    return (steps.sum() == 0) | ~masked.any()


def sees_no_further(*given):
    """A pass over a sub-block does not see what stands after it in the block."""
    window = block_window(*given)
    return window._replace(end=window.begin + window.read)


@pytest.mark.parametrize(("name", "fault"), [("needs_wide", never_again), ("block_window", sees_no_further)])
def test_a_stale_cache_is_seen(engine, monkeypatch, name, fault):
    monkeypatch.setattr(block_program, name, fault)
    fresh = wraps(block_program._fill)(lambda *args, **static: block_program._fill(*args, **static))
    monkeypatch.setattr(decoder, "fill", jit(fresh, static=("config", "options", "program"), donate=("cache",)))
    wrong = differing(engine, 4, thresholds=[1.0])
    assert len(wrong) >= len(LENGTHS) - 2


def test_the_cache_is_approximate_and_the_comparison_tells_it_from_the_exact_one():
    told = [
        length
        for length in LENGTHS
        if wanted_of(prompt_of(length), 1.0).tokens != wanted_of(prompt_of(length), 1.0, name="fast-dllm-v2").tokens
    ]
    assert told


# ---- windows -------------------------------------------------------------------------------------------------------


def program_of(**options):
    return resolved(BlockOptions(**{"causal": False, "thresholds": (0.9,), **options}), SMALL)


def mask_at(*indices):
    return jnp.array([n in indices for n in range(8)])


def test_the_sizes_of_windows():
    assert program_of().windows == (8, 8)
    assert program_of(sub_block=4).windows == (8, 8)
    assert program_of(sub_block=4, cache="dual").windows == (8, 4)
    assert program_of(causal=True).windows == (16, 9)
    assert program_of(causal=True, sub_block=4, cache="dual").windows == (8, 5)


def test_when_the_whole_block_is_read():
    dual, none, some = program_of(sub_block=4, cache="dual"), jnp.array([0, 0]), jnp.array([1, 0])
    assert needs_wide(mask_at(1, 2, 5), none, dual), "the first pass"
    assert not needs_wide(mask_at(1, 2, 5), some, dual)
    assert needs_wide(mask_at(4, 5), some, dual), "the token before the sub-block predicts its first"
    assert not needs_wide(mask_at(5), some, dual)
    assert needs_wide(mask_at(), some, dual), "to store the block"
    causal = program_of(causal=True, sub_block=4, cache="dual")
    assert needs_wide(mask_at(5), some, causal), "the sub-block's first pass"
    assert not needs_wide(mask_at(1), some, causal)


def block_of(start, stop, committed_until=0, room=64):
    before = np.arange(start - 8, start, dtype=np.int32)
    at = dict.fromkeys(("generated", "limit", "thresholds"), np.int32(0))
    return block_program.Block(np.zeros(8, np.int32), before, np.int32(start), np.int32(stop),
                               np.int32(committed_until), room=np.int32(room), **at)  # fmt: skip


def test_what_a_window_holds():
    ids, dual = jnp.arange(100, 108), program_of(sub_block=4, cache="dual")
    found = block_window(block_of(16, 24), ids, mask_at(5, 7), 4, dual)
    assert (int(found.begin), int(found.read), int(found.end), int(found.first)) == (20, 4, 24, 4)
    assert found.tokens.tolist() == [104, 105, 106, 107]
    assert found.rows.tolist() == [-1, 0, 1, 2], "the first is not asked for"
    causal = program_of(causal=True, sub_block=4, cache="dual")
    found = causal_window(block_of(17, 23), ids, mask_at(5), jnp.int32(19), 8, causal)
    assert (int(found.begin), int(found.read), int(found.end)) == (19, 4, 23), "the block was cut at the end"
    assert found.tokens.tolist()[:4] == [102, 103, 104, 105]
    assert found.rows.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cache": "none"}, r"cache.*none.*prefix or dual.*\[diffusion-option\]"),
        ({"cache": "Dual"}, r"cache.*Dual.*prefix or dual.*\[diffusion-option\]"),
        ({"causal": True, "sub_block": 4}, r"sub_block.*8, or cache dual.*\[sub-block\]"),
        ({"causal": True, "block": 64, "sub_block": 3, "cache": "dual"}, r"a divisor of 64.*\[sub-block\]"),
        ({"sub_block": 4, "cache": "dual", "max_passes": 3}, r"sub-blocks as large as the block.*\[diffusion-option\]"),
    ],
)
def test_options_that_contradict_each_other(options, said):
    with pytest.raises(ConfigError, match=said):
        program_of(**options)


def test_a_causal_sub_block_that_is_no_half_chunk_is_refused():
    wide = replace(SMALL, context=320)
    with pytest.raises(ConfigError, match=r"sub_block.*1 to 64.*\[sub-block\]"):
        resolved(preset("small-block", block=130, sub_block=65), wide)
    assert isinstance(resolved(preset("small-block", block=128, sub_block=64), wide), BlockProgram)


def test_an_option_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match=r"comit.*sub_block.*\[diffusion-option\]"):
        preset(DUAL, comit="pass")
