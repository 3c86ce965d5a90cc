"""Caches in the forward pass: golden bits for the exact one, and for the others exactly what each keeps."""

from dataclasses import replace

import numpy as np
import pytest
from kv_cases import ALL, BY_TOKEN, scheme_id

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import ContextError, NonFiniteError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.base import KvCache, KvScheme
from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.paged import PagedCache, PagePool
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.layers.attention import mix_values, softmax_weights
from tritgold.model import forward
from tritgold.modes import comparable
from tritgold.trace import Trace

TOKENS = list(range(40, 52))
LOSSY = pytest.mark.parametrize("scheme", [s for s in ALL if s.id != "f32"], ids=scheme_id)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("heads-of-64")
    write_seeded_model(folder, Shape(hidden=256, inter=64, layers=2, heads=4, kv_heads=2, context=64))
    return open_checkpoint(folder)


def traced(opened: Checkpoint, cache: KvCache | None, pieces: list[int]) -> Trace:
    trace, start = Trace(), 0
    for size in pieces:
        forward(TOKENS[start : start + size], opened.weights, opened.config, cache, trace)
        start += size
    return trace


def test_the_exact_scheme_contiguous_or_paged_is_the_golden_model(opened: Checkpoint) -> None:
    golden = traced(opened, None, [12])
    pool = PagePool(F32(), opened.config, pages=5, page_size=3)
    for cache in (kv_scheme("f32").cache(opened.config, 12), PagedCache(pool, 12)):
        trace = traced(opened, cache, [5, 1, 6])
        assert trace.digest() == golden.digest()
        assert trace.mode == "golden/1"


@LOSSY
def test_attention_reads_what_the_cache_gives_back_and_the_trace_says_so(opened: Checkpoint, scheme: KvScheme) -> None:
    cache, seen = scheme.cache(opened.config, 12), []
    append = cache.append

    def watched(layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append(append(layer, k, v))
        return seen[-1]

    cache.append = watched  # type: ignore[method-assign]
    forward(TOKENS[:7], opened.weights, opened.config, cache)
    trace = Trace()
    forward(TOKENS[7:], opened.weights, opened.config, cache, trace)
    for layer in range(2):
        keys, values = seen[2 + layer]
        assert keys.shape == values.shape == (12, 2, 64)
        probs = softmax_weights(trace[f"layers.{layer}.q_rope"], keys, start=7)
        assert np.array_equal(trace[f"layers.{layer}.probs"], probs)
        assert np.array_equal(trace[f"layers.{layer}.attn_mix"], mix_values(probs, values))
    assert trace.mode == f"kv-{scheme.id}-golden/1"
    assert not comparable(trace.mode, "golden/1")


@LOSSY
def test_each_scheme_is_an_arithmetic_of_its_own(opened: Checkpoint, scheme: KvScheme) -> None:
    """Close to the golden logits, and not they. KIVI's window holds all of these tokens: it is exact."""
    golden = forward(TOKENS, opened.weights, opened.config)
    got = forward(TOKENS, opened.weights, opened.config, scheme.cache(opened.config, 12))
    if scheme.name.startswith("kivi"):
        assert np.array_equal(got, golden)
        return
    assert not np.array_equal(got, golden)
    cosine = (got * golden).sum() / np.linalg.norm(got) / np.linalg.norm(golden)
    assert cosine > (0.99 if scheme.bits_per_value(opened.config) >= 8 else 0.9)


@pytest.mark.parametrize("scheme", BY_TOKEN, ids=scheme_id)
def test_prefill_chunks_single_steps_and_pages_give_the_same_bits(opened: Checkpoint, scheme: TokenScheme) -> None:
    pool = PagePool(scheme, opened.config, pages=4, page_size=4)
    caches = [scheme.cache(opened.config, 12), scheme.cache(opened.config, 12), PagedCache(pool, 12)]
    pieces = [[12], [1] * 12, [5, 7]]
    digests = {traced(opened, c, p).digest() for c, p in zip(caches, pieces, strict=True)}
    assert len(digests) == 1


@pytest.mark.parametrize("scheme", ALL, ids=scheme_id)
def test_a_block_that_is_tried_and_forgotten_changes_nothing(opened: Checkpoint, scheme: KvScheme) -> None:
    tried, straight = (scheme.cache(opened.config, 64) for _ in range(2))
    for start in range(0, 64, 16):
        block = [(7 * i + start) % 200 for i in range(16)]
        forward(block[::-1], opened.weights, opened.config, tried, block=16)
        tried.truncate(start)
        got, wanted = (forward(block, opened.weights, opened.config, cache, block=16) for cache in (tried, straight))
        assert np.array_equal(got, wanted)


def test_too_many_tokens_are_refused_before_anything_is_computed(opened: Checkpoint) -> None:
    def never(*_: object) -> np.ndarray:
        raise AssertionError("computed")

    arithmetic = replace(GOLDEN_ARITHMETIC, embed=never, rotation_table=never)
    pool = PagePool(F32(), opened.config, pages=1, page_size=4)
    for cache, kind in (
        (kv_scheme("q8_0").cache(opened.config, 4), "cache-full"),
        (kv_scheme("f32").cache(opened.config, 4), "cache-full"),
        (PagedCache(pool, 4), "cache-full"),
        (PagedCache(pool, 9), "no-free-page"),
    ):
        trace = Trace()
        with pytest.raises(ContextError) as refused:
            forward([1] * 5, opened.weights, opened.config, cache, trace, arithmetic=arithmetic)
        assert (refused.value.kind, trace.arrays, trace.tokens, cache.length) == (kind, {}, [], 0)


@LOSSY
def test_a_key_that_is_not_finite_is_named_where_it_arises(opened: Checkpoint, scheme: KvScheme) -> None:
    def spoiled(x: np.ndarray, table: object) -> np.ndarray:
        y = GOLDEN_ARITHMETIC.rotate(x, table)
        y[1, 1, 5] = np.inf
        return y

    cache, arithmetic = scheme.cache(opened.config, 12), replace(GOLDEN_ARITHMETIC, rotate=spoiled)
    with pytest.raises(NonFiniteError, match=r"layers\.0\.k: token 1 of the pass is not finite in head 1, channel 5"):
        forward(TOKENS, opened.weights, opened.config, cache, arithmetic=arithmetic)
    assert cache.length == 0
    fresh = scheme.cache(opened.config, 12)
    got, wanted = (forward(TOKENS, opened.weights, opened.config, c) for c in (cache, fresh))
    assert np.array_equal(got, wanted)
