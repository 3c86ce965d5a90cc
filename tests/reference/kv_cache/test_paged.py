"""Paged storage: the numbers of the contiguous cache, real addresses, and a pool that can run dry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_cases import BY_TOKEN, SHAPE, fill, random_kv, read, scheme_id

from tritgold.errors import ConfigError, ContextError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.paged import PagedCache, PagePool
from tritgold.kv_cache.q4_0 import Q40
from tritgold.kv_cache.token_rows import TokenScheme

RNG = np.random.default_rng(25)


@pytest.mark.parametrize("scheme", BY_TOKEN, ids=scheme_id)
def test_a_paged_cache_gives_the_bits_of_the_contiguous_one(scheme: TokenScheme) -> None:
    k, v = random_kv(23)
    plain = scheme.cache(SHAPE, 23)
    paged = PagedCache(PagePool(scheme, SHAPE, pages=6, page_size=4), 23)
    assert paged.scheme == plain.scheme
    for passes in ((5, 1, 1, 10, 6), (23,)):
        for layer in range(2):
            for cache in (plain, paged):
                cache.truncate(0)
            got, wanted = (fill(cache, k, v, passes, layer) for cache in (paged, plain))
            assert all(a.tobytes() == b.tobytes() for a, b in zip(got, wanted, strict=True))


def test_two_sequences_share_a_pool_and_nothing_else() -> None:
    pool = PagePool(F32(), SHAPE, pages=8, page_size=2)
    caches = [PagedCache(pool, 8) for _ in range(2)]
    numbers = [random_kv(7, seed) for seed in range(2)]
    for t in range(7):
        for cache, (k, v) in zip(caches, numbers, strict=True):
            cache.append(0, k[t : t + 1], v[t : t + 1])
            cache.append(1, v[t : t + 1], k[t : t + 1])
            cache.advance(1)
    assert [cache.table for cache in caches] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    for cache, (k, v) in zip(caches, numbers, strict=True):
        assert [a.tobytes() for a in read(cache, 0)] == [k.tobytes(), v.tobytes()]
        assert [a.tobytes() for a in read(cache, 1)] == [v.tobytes(), k.tobytes()]
    caches[0].truncate(3)
    assert (caches[0].table, pool.free_pages) == ([0, 2], 2)
    assert pool.allocate(2) == [4, 6], "given back last, handed out first"
    caches[1].truncate(0)
    assert caches[1].table == []
    assert pool.allocate(4) == [1, 3, 5, 7]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=20),
    st.sampled_from(["k", "v"]),
)
def test_gather_gives_what_scatter_wrote_and_the_last_of_several(addresses: list[tuple[int, int]], side: str) -> None:
    pool = PagePool(Q40(), Sizes(2, 1, 32), pages=5, page_size=3)
    pages, slots = (np.array(part) for part in zip(*addresses, strict=True))
    rows = RNG.integers(0, 256, (len(addresses), 18), np.uint8)
    memory = dict(zip(addresses, rows, strict=True))
    pool.scatter(1, side, pages, slots, rows)  # type: ignore[arg-type]
    everywhere = [(p, s) for p in range(5) for s in range(3)]
    got = pool.gather(1, side, *(np.array(part) for part in zip(*everywhere, strict=True)))  # type: ignore[arg-type]
    for address, row in zip(everywhere, got, strict=True):
        assert np.array_equal(row, memory.get(address, np.zeros(18)))
    assert not pool.gather(0, side, pages, slots).any(), "another layer is untouched"  # type: ignore[arg-type]
    assert not pool.gather(1, "v" if side == "k" else "k", pages, slots).any()


@pytest.mark.parametrize(("page", "slot", "what"), [(-1, 0, "page"), (5, 0, "page"), (0, -1, "slot"), (0, 3, "slot")])
def test_addresses_outside_the_pool_are_refused_and_nothing_is_written(page: int, slot: int, what: str) -> None:
    pool = PagePool(Q40(), Sizes(1, 1, 32), pages=5, page_size=3)
    pages, slots = np.array([1, page]), np.array([1, slot])
    rows = np.ones((2, 18), np.uint8)
    for act in (lambda: pool.scatter(0, "k", pages, slots, rows), lambda: pool.gather(0, "k", pages, slots)):
        with pytest.raises(ContextError, match=f"no such {what}") as refused:
            act()
        assert refused.value.kind == "page-address"
    assert not pool.gather(0, "k", pages[:1], slots[:1]).any()


def test_a_pool_that_has_too_few_pages_gives_none() -> None:
    pool = PagePool(F32(), SHAPE, pages=3, page_size=2)
    cache, other = PagedCache(pool, 100), PagedCache(pool, 100)
    k, v = random_kv(7)
    with pytest.raises(ContextError, match="the page pool is exhausted: found 4, expected 3") as refused:
        cache.append(0, k, v)
    assert refused.value.kind == "no-free-page"
    assert (pool.free_pages, cache.table) == (3, [])
    fill(cache, k[:3], v[:3], [3])
    fill(other, k[:2], v[:2], [2])
    cache.check_room(1)  # a slot is left in its last page
    for act in (lambda: cache.check_room(2), lambda: other.check_room(1)):
        with pytest.raises(ContextError):
            act()
    fill(cache, k[3:4], v[3:4], [1])
    assert read(cache)[0].tobytes() == k[:4].tobytes()
    with pytest.raises(ContextError, match="the KV cache is full"):
        PagedCache(pool, 4).check_room(5)


def test_a_refused_pass_takes_no_page() -> None:
    pool = PagePool(Q40(), SHAPE, pages=3, page_size=2)
    cache = PagedCache(pool, 6)
    k, v = random_kv(2)
    v[1, 1, 1] = np.nan
    with pytest.raises(Exception, match=r"layers\.0\.v: token 1"):
        cache.append(0, k, v)
    assert pool.free_pages == 3


@pytest.mark.parametrize("pages", [[0, 0], [2], [-1], [3]])
def test_pages_that_are_not_out_cannot_be_given_back(pages: list[int]) -> None:
    pool = PagePool(F32(), SHAPE, pages=3, page_size=2)
    assert pool.allocate(2) == [0, 1]
    with pytest.raises(ContextError) as refused:
        pool.release(pages)
    assert refused.value.kind == "page-address"
    assert pool.free_pages == 1


@pytest.mark.parametrize("name", ["kivi2", "kivi4", "fake_fp8"])
def test_schemes_whose_tokens_share_scales_cannot_be_paged(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be paged") as refused:
        PagePool(kv_scheme(name), SHAPE, pages=2, page_size=4)
    assert refused.value.kind == "kv-paged"


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (-1, 1)])
def test_sizes_below_one_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="expected at least 1"):
        PagePool(F32(), SHAPE, *sizes)
