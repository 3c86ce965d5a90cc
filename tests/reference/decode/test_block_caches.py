"""Block diffusion with keys and values in any scheme that keeps tokens by themselves, and with other arithmetic."""

import numpy as np
import pytest
from plain_diffusion import BLOCK, MASK, engine, prompt_of, small_model
from refusals import refusal

from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.diffusion_record import Diffused
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold.sparsity.rules import sparsity_rule

COARSE = [kv_scheme("affine", bits=2), kv_scheme("fp8_e5m2"), kv_scheme("turboquant", bits=2), kv_scheme("a4_8")]
WAYS = {
    "fast-dllm-v2": preset("fast-dllm-v2", 0.02, sub_block=4),
    "iterative": preset("iterative", 0.02),
    "llada": preset("llada", 0.02),
}


def recompute(prompt: list[int], how: Diffusion, scheme: KvScheme, arithmetic: Arithmetic) -> Diffused:
    """The whole text again in each pass, in a fresh cache of the scheme: what is kept can go stale nowhere."""
    opened = small_model(1)
    text: dict[int, int] = {}
    block = {"block": BLOCK, "causal": 1, "full": opened.config.context}[how.attention]

    def model(tokens: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        text.update(enumerate(tokens, start))
        cache = scheme.cache(opened.config, end)
        whole = [text[at] for at in range(end)]
        wanted = [start + row for row in rows]
        return forward(whole, opened.weights, opened.config, cache, arithmetic=arithmetic, block=block, rows=wanted)

    return block_diffusion(prompt, opened.config, model, 20, how)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", COARSE, ids=lambda scheme: scheme.id)
def test_a_coarse_cache_is_the_same_scheme_recomputed(way: str, scheme: KvScheme) -> None:
    opened, prompt, how = small_model(1), prompt_of(1, 11), WAYS[way]
    cache = scheme.cache(opened.config, 40)
    model = reference_block_model(opened.weights, opened.config, how, 31, cache)
    done = block_diffusion(prompt, opened.config, model, 20, how)
    again = recompute(prompt, how, scheme, GOLDEN_ARITHMETIC)
    assert (done.tokens, done.order) == (again.tokens, again.order)
    assert MASK not in done.tokens


def test_a_coarse_cache_shows() -> None:
    opened, prompt, how = small_model(1), prompt_of(1, 11), WAYS["iterative"]
    texts = set()
    for scheme in (kv_scheme("f32"), *COARSE[:3]):
        model = reference_block_model(opened.weights, opened.config, how, 31, scheme.cache(opened.config, 40))
        texts.add(tuple(block_diffusion(prompt, opened.config, model, 20, how).tokens))
    assert len(texts) > 1


@pytest.mark.parametrize("way", WAYS)
def test_another_arithmetic_is_used_in_every_pass(way: str) -> None:
    opened, prompt, how = small_model(1), prompt_of(1, 11), WAYS[way]
    sparse = sparsity_rule("top_k", keep=0.2).arithmetic(sparsity_rule("attention_top_k", k=2).arithmetic())
    model = reference_block_model(opened.weights, opened.config, how, 31, arithmetic=sparse)
    done = block_diffusion(prompt, opened.config, model, 20, how)
    again = recompute(prompt, how, kv_scheme("f32"), sparse)
    assert (done.tokens, done.order) == (again.tokens, again.order)
    assert done.tokens != engine(opened, prompt, 20, how).tokens


@pytest.mark.parametrize("name", ["kivi2", "kivi4", "fake_fp8"])
def test_tokens_that_share_scales_cannot_be_replaced(name: str) -> None:
    opened = small_model(1)
    cache = kv_scheme(name, **({"group": 8, "window": 8} if name != "fake_fp8" else {})).cache(opened.config, 40)
    how = WAYS["iterative"]
    error = refusal(lambda: reference_block_model(opened.weights, opened.config, how, 31, cache))
    assert error.kind == "kv-in-place"
    assert str(error.thing).startswith(name)
