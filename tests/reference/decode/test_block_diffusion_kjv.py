"""The oracles once more on kjv-dlm, which has learnt something: blocks of 32, real confidences."""

from dataclasses import replace

import numpy as np
import pytest
from plain_diffusion import engine, stored

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.decode.autoregressive import greedy, reference_logits
from tritgold.decode.block_diffusion import block_diffusion, block_diffusion_batch
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.unmasking import Leftmost
from tritgold.golden import trained_model
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.model import forward
from tritgold.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def opened() -> Checkpoint:
    return open_checkpoint(trained_model("kjv-dlm"))


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return Tokenizer(trained_model("kjv-dlm") / "tokenizer.json").encode("And God said, Let there be")


@pytest.mark.parametrize("length", [8, 19])
def test_causal_attention_and_the_leftmost_mask_alone_are_greedy_decoding(
    opened: Checkpoint, prompt: list[int], length: int
) -> None:
    """Over two blocks of 8 and more; all other lengths are in test_block_diffusion_model.py."""
    text = (prompt * 4)[:length]
    logits = reference_logits(opened.weights, opened.config, 32)
    steps = [step.token for step in greedy(text, opened.config, logits, 12)]
    how = Diffusion(attention="causal", commit="merged", rule=Leftmost(), block=8)
    assert engine(opened, text, 12, how).tokens == steps


@pytest.mark.parametrize("length", [8, 13])
def test_at_threshold_1_a_token_a_pass_and_sub_blocks_of_a_block_need_no_cache(
    opened: Checkpoint, prompt: list[int], length: int
) -> None:
    text, how = (prompt * 4)[:length], preset("fast-dllm-v2", 1.0, block=8, sub_block=8)
    done = engine(opened, text, 12, how)
    assert all(p.decided == 1 for p in done.passes if not p.commit)
    for policy in ("none", "dual"):
        other = engine(opened, text, 12, replace(how, cache=policy))
        assert (other.tokens, other.order) == (done.tokens, done.order)


@pytest.mark.parametrize("name", ["fast-dllm-v2", "iterative"])
def test_the_cache_changes_no_token(opened: Checkpoint, prompt: list[int], name: str) -> None:
    how = preset(name, 0.1, block=16)
    cached, whole = (engine(opened, prompt, 14, replace(how, cache=policy)) for policy in ("prefix", "none"))
    assert (cached.tokens, cached.order) == (whole.tokens, whole.order)
    assert max(p.decided for p in cached.passes) > 1


def test_what_is_kept_is_a_prefill_of_the_final_text(opened: Checkpoint, prompt: list[int]) -> None:
    config, how, cache = opened.config, preset("fast-dllm-v2-dual", 0.2), Float32Cache(opened.config, 64)
    done = block_diffusion(prompt, config, reference_block_model(opened.weights, config, how, 64, cache), 28, how)
    assert done.commits == 1
    prefilled = Float32Cache(config, 32)
    forward((prompt + done.tokens)[:32], opened.weights, config, prefilled, block=32)
    cache.length = 32
    assert stored(cache, config) == stored(prefilled, config)


def test_a_batch_is_its_sequences_alone(opened: Checkpoint, prompt: list[int]) -> None:
    how = preset("fast-dllm-v2-dual", 0.2, block=16)
    prompts = [prompt[:3], prompt, prompt[:5]]
    models = [reference_block_model(opened.weights, opened.config, how, 40) for _ in prompts]
    together = block_diffusion_batch(prompts, opened.config, models, 12, how)
    assert together.results == [engine(opened, one, 12, how) for one in prompts]


def test_noise_gives_other_texts_and_the_same_from_the_same_seed(opened: Checkpoint, prompt: list[int]) -> None:
    sampling = [replace(preset("llada").sampling, temperature=0.8, seed=seed) for seed in (1, 1, 2)]
    texts = [engine(opened, prompt, 8, preset("llada", 0.2, block=8, sampling=s)).tokens for s in sampling]
    assert texts[0] == texts[1] != texts[2]
    assert not np.isin(opened.config.mask, texts).any()
