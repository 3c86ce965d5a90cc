"""Pages of another owner in a cache: read like its own, never written, never given back."""

import pytest
from kv_cases import BY_TOKEN, SHAPE, fill, random_kv, read, scheme_id
from refusals import refusal

from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.paged import PagedCache, PagePool
from tritgold.kv_cache.token_rows import TokenScheme

SHAREABLE = [scheme for scheme in BY_TOKEN if scheme.first is None]


@pytest.mark.parametrize("scheme", SHAREABLE, ids=scheme_id)
def test_a_prefix_that_another_wrote_has_the_bits_of_ones_own(scheme: TokenScheme) -> None:
    k, v = random_kv(11)
    pool = PagePool(scheme, SHAPE, pages=8, page_size=4)
    writer, reader = PagedCache(pool, 11), PagedCache(pool, 11)
    fill(writer, k[:9], v[:9], [9])
    fill(writer, k[:0], v[:0], [0], layer=1)
    reader.share(writer.table[:2])
    assert (reader.length, reader.table, reader.pages_missing(4), reader.pages_missing(5)) == (8, [0, 1], 1, 2)
    got = fill(reader, k[8:], v[8:], [1, 2])
    wanted = fill(scheme.cache(SHAPE, 11), k, v, [11])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, wanted, strict=True))
    assert (writer.table, reader.table) == ([0, 1, 2], [0, 1, 3])
    reader.truncate(0)
    assert (reader.table, reader.shared, pool.free_pages) == ([], 0, 5)
    assert read(writer)[0].tobytes() == wanted[0][:9].tobytes()


def test_what_is_cut_off_is_given_back_if_it_is_ones_own() -> None:
    pool = PagePool(F32(), SHAPE, pages=6, page_size=2)
    given, cache = pool.allocate(2), PagedCache(pool, 12)
    cache.share(given)
    fill(cache, *random_kv(3), passes=[3])
    cache.truncate(5)
    assert (cache.table, pool.free_pages) == ([0, 1, 2], 3)
    assert refusal(lambda: cache.truncate(3)).kind == "page-shared"
    assert (cache.length, cache.table) == (5, [0, 1, 2])
    cache.truncate(2)
    assert (cache.table, cache.shared, pool.free_pages) == ([0], 1, 4)
    fill(cache, *random_kv(1), passes=[1])
    assert cache.table[0] == 0
    assert cache.table[1] not in given, "after the shared page a new one"


def test_pages_in_place_of_ones_own() -> None:
    pool = PagePool(F32(), SHAPE, pages=6, page_size=2)
    k, v = random_kv(5)
    other, cache = PagedCache(pool, 6), PagedCache(pool, 6)
    for each in (other, cache):
        fill(each, k, v, [5])
    assert pool.free_pages == 0
    mine = cache.table[:2]
    cache.share(other.table[:2])
    pool.release(mine)
    assert (cache.table, cache.shared, cache.length) == ([0, 1, 5], 2, 5)
    assert read(cache)[0].tobytes() == k.tobytes()


def test_refusals() -> None:
    pool = PagePool(F32(), SHAPE, pages=6, page_size=2)
    cache = PagedCache(pool, 5)
    pages = pool.allocate(3)
    assert refusal(lambda: cache.share(pages)).kind == "cache-full"
    cache.share(pages[:2])
    assert refusal(lambda: cache.share(pages[:1])).kind == "page-shared"
    assert (cache.table, cache.length) == (pages[:2], 4)
    exceptional = PagedCache(PagePool(kv_scheme("a4_8"), SHAPE, 4, 2), 8)
    assert refusal(lambda: exceptional.share([])).kind == "kv-shared"
    assert exceptional.table == []
