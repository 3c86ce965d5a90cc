"""Block diffusion by the golden model: what a cache-free second writing of the algorithm gives, bit for bit."""

from dataclasses import replace
from inspect import getclosurevars

import numpy as np
import pytest

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import greedy, reference_logits
from tritgold.decode.block_diffusion import Diffused, block_diffusion, reference_block_logits
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.model import forward


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Two layers: what a mask leaves in the cache shows in the keys of the second. <eot> stands for a mask."""
    folder = tmp_path_factory.mktemp("small")
    write_seeded_model(folder, Shape(hidden=16, inter=16, layers=2, heads=2, kv_heads=1, context=32))
    checkpoint = open_checkpoint(folder)
    return replace(checkpoint, config=replace(checkpoint.config, mask=258, block=8, eos=()))


def naive(
    prompt: list[int], opened: Checkpoint, config: ModelConfig, max_tokens: int, threshold: float, sub_block: int
) -> tuple[list[int], int]:
    """Tokens and passes, by forwarding the whole text each time: no cache, no start, no copy of the decoder's code."""
    mask, block = config.mask or 0, config.block or 0
    text, passes = list(prompt), 0

    def output() -> list[int] | None:
        new = text[len(prompt) :][:max_tokens]
        ends = [n for n, token in enumerate(new, start=1) if token in config.eos]
        new = new[: ends[0]] if ends else new
        return None if mask in new or not (ends or len(new) == max_tokens) else new

    while (found := output()) is None:
        text += [mask] * (-len(text) % block)
        logits = forward(text, opened.weights, config, block=block).astype(np.float64)
        logits[:, mask] = -np.inf
        tokens = logits.argmax(axis=1).tolist()
        if mask not in text:
            passes += len(text) > len(prompt)
            text.append(tokens[-1])
            continue
        passes += 1
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        sure = (powers.max(axis=1) / powers.sum(axis=1)).tolist()
        first = text.index(mask) // sub_block * sub_block
        masked = [at for at in range(first, first + sub_block) if text[at] == mask]
        best = max(masked, key=lambda at: sure[at - 1])
        for at in masked:
            if at == best or sure[at - 1] > threshold:
                text[at] = tokens[at - 1]
    return found, passes


def both_ways(opened: Checkpoint, config: ModelConfig, prompt: list[int], threshold: float, sub_block: int) -> Diffused:
    """12 tokens; with a cache and without are one text in one number of passes."""
    logits = reference_block_logits(opened.weights, config, 32)
    done = block_diffusion(prompt, config, logits, 12, threshold, sub_block)
    assert (done.tokens, done.forwards) == naive(prompt, opened, config, 12, threshold, sub_block)
    return done


@pytest.mark.parametrize(
    ("prompt", "sub_block"),
    [([3, 4, 5], 4), (list(range(8, 16)), 8), (list(range(11, 22)), 2), (list(range(11, 22)), 8)],
)
def test_the_cache_changes_no_token_and_no_number_of_passes(
    opened: Checkpoint, prompt: list[int], sub_block: int
) -> None:
    passes = [both_ways(opened, opened.config, prompt, threshold, sub_block).forwards for threshold in (0, 0.3, 1)]
    assert passes[0] < passes[1] <= passes[2], "this model is sure of some tokens and not of others"


def test_without_a_cache_the_text_ends_at_the_same_end_of_sequence(opened: Checkpoint) -> None:
    """213 is the second token decided, and the fourth in the text."""
    whole = both_ways(opened, opened.config, [3, 4, 5], 1, 8)
    assert (whole.tokens.index(213), whole.order[:5]) == (3, [3, 2, 4, 1, 0])
    ended = both_ways(opened, replace(opened.config, eos=(213,)), [3, 4, 5], 1, 8)
    assert ended == Diffused(whole.tokens[:4], 5, whole.order[:4], "stop")


@pytest.mark.parametrize("prompt", [3, 8, 11])
def test_what_is_kept_is_what_a_prefill_of_the_final_text_keeps(opened: Checkpoint, prompt: int) -> None:
    """Bit for bit: no key of a mask, none of a token that was still alone among masks."""
    config, tokens = opened.config, list(range(prompt, 2 * prompt))
    logits = reference_block_logits(opened.weights, config, 32)
    done = block_diffusion(tokens, config, logits, 16)
    cache = getclosurevars(logits).nonlocals["cache"]
    assert cache.length == (prompt + 15) // 8 * 8 > prompt
    prefilled = Float32Cache(config, cache.length)
    forward((tokens + done.tokens)[: cache.length], opened.weights, config, prefilled, block=8)
    assert stored(cache) == stored(prefilled)


def stored(cache: Float32Cache) -> list[bytes]:
    """Keys and values of each layer, read by appending nothing."""
    nothing = np.zeros((0, 1, 8), np.float32)
    return [array.tobytes() for layer in range(2) for array in cache.append(layer, nothing, nothing)]


def test_twice_is_the_same(opened: Checkpoint) -> None:
    def run() -> Diffused:
        logits = reference_block_logits(opened.weights, opened.config, 32)
        return block_diffusion([5, 6, 7], opened.config, logits, 12, 0.3)

    assert run() == run()


def test_a_block_of_one_token_is_greedy_decoding(opened: Checkpoint) -> None:
    config, prompt = replace(opened.config, block=1), [5, 6, 7]
    logits = reference_block_logits(opened.weights, config, 32)
    done = block_diffusion(prompt, config, logits, 100, sub_block=1)
    steps = list(greedy(prompt, config, reference_logits(opened.weights, config, 32), 100))
    assert done.tokens == [step.token for step in steps]
    assert (done.forwards, done.reason) == (len(steps) - 1, steps[-1].reason)
