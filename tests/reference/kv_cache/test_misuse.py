"""What no scheme, cache or pool may take: options that only look like numbers, arrays of another model, other sizes."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from kv_cases import ALL, SHAPE, fill, random_kv, scheme_id
from refusals import frugal, refusal

from tritgold.kv_cache.base import KvScheme, Sizes
from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold.kv_cache.paged import PagedCache, PagePool
from tritgold.kv_cache.radix import RadixCache

INTEGERS = [(name, f.name) for name, scheme in SCHEMES.items() for f in fields(scheme) if type(f.default) is int]
FLOATS = [(name, f.name) for name, scheme in SCHEMES.items() for f in fields(scheme) if type(f.default) is float]


@pytest.mark.parametrize(("name", "option"), INTEGERS + FLOATS)
@pytest.mark.parametrize("value", [True, math.nan, math.inf, "abc", None, 10**400, [4], -1], ids=lambda v: str(v)[:9])
def test_what_is_no_number_is_refused_at_once(name: str, option: str, value: Any) -> None:
    with frugal():
        assert refusal(lambda: kv_scheme(name, **{option: value})).kind == "kv-option"


@pytest.mark.parametrize(("name", "option"), INTEGERS)
@pytest.mark.parametrize("value", [4.0, 128.0, 0.5])
def test_a_float_is_no_integer(name: str, option: str, value: float) -> None:
    assert refusal(lambda: kv_scheme(name, **{option: value})).kind == "kv-option"


def test_the_sweep_is_one() -> None:
    assert {("affine", "bits"), ("kivi2", "window"), ("turboquant", "seed")} <= set(INTEGERS)
    assert {("affine", "clip"), ("fp8_e4m3", "k_scale")} <= set(FLOATS)


K = np.ones((3, SHAPE.kv_heads, SHAPE.head_dim), np.float32)


@pytest.mark.parametrize("scheme", ALL, ids=scheme_id)
@pytest.mark.parametrize(
    ("layer", "k", "v"),
    [
        (0, K[:, :1], K[:, :1]),  # NumPy would repeat the head
        (0, K.reshape(3, 1, -1), K.reshape(3, 1, -1)),
        (0, K.reshape(3, -1), K.reshape(3, -1)),
        (0, K, K[:2]),
        (0, K.astype(np.float64), K),
        (0, K, K.astype(int)),
        (0, K[0, 0], K),
        (-1, K, K),
        (SHAPE.layers, K, K),
    ],
    ids=range(9),
)
def test_arrays_of_another_model_are_refused_and_nothing_is_kept(scheme: KvScheme, layer: Any, k: Any, v: Any) -> None:
    cache = scheme.cache(SHAPE, 8)
    assert refusal(lambda: cache.append(layer, k, v)).kind == "kv-array"
    assert cache.length == 0


@pytest.mark.parametrize("scheme", ALL, ids=scheme_id)
def test_sizes_that_are_none(scheme: KvScheme) -> None:
    assert refusal(lambda: scheme.cache(SHAPE, -1)).kind == "kv-option"
    for shape in (Sizes(0, 1, 64), Sizes(1, 0, 64), Sizes(1, 1, 0), Sizes(1, 1, -64)):
        assert refusal(lambda shape=shape: scheme.cache(shape, 8)).kind == "kv-shape"
    cache = scheme.cache(SHAPE, 8)
    fill(cache, *random_kv(5), [5])
    for length in (-1, True):
        assert refusal(lambda length=length: cache.truncate(length)).kind == "kv-truncate"
    for tokens in (-1, 4):
        assert refusal(lambda tokens=tokens: cache.advance(tokens)).kind == "cache-full"
    assert cache.length == 5


@pytest.mark.parametrize("scheme", ALL, ids=scheme_id)
def test_the_largest_float32_is_held_or_overflows_by_name_without_a_warning(scheme: KvScheme) -> None:
    k = np.full((130, *K.shape[1:]), 3e38, np.float32)
    cache = scheme.cache(SHAPE, 256)
    try:
        keys, _ = cache.append(0, k, k)
    except Exception:
        assert refusal(lambda: cache.append(0, k, k)).kind == "kv-overflow"
    else:
        assert np.isfinite(keys).all()


def test_one_coordinate_cannot_be_rotated() -> None:
    assert refusal(lambda: kv_scheme("turboquant").cache(Sizes(1, 1, 1), 4)).kind == "kv-shape"


@pytest.mark.parametrize(("pages", "page_size"), [(1.5, 2), (2, 2.0), (True, 2), ("4", 2), (math.nan, 2), (2, -1)])
def test_pools_of_no_size(pages: Any, page_size: Any) -> None:
    assert refusal(lambda: PagePool(F32(), SHAPE, pages, page_size)).kind == "kv-option"
    scheme: Any = "f32"
    assert refusal(lambda: PagePool(scheme, SHAPE, 4, 2)).kind == "kv-paged"


def test_pages_are_whole_numbers_and_rows_are_bytes() -> None:
    pool, at = PagePool(F32(), SHAPE, 4, 2), np.array([0, 1])
    held = pool.allocate(4)
    for count in (-1, 1.5):
        assert refusal(lambda count=count: pool.allocate(count)).kind == "page-address"
    for pages in ([1.0], [1.5], [True], [None]):
        assert refusal(lambda pages=pages: pool.release(pages)).kind == "page-address"
    width = F32().row_bytes(SHAPE)
    rows = np.zeros((2, width), np.uint8)
    for wrong in (rows[:1], rows[:, :1], rows.astype(np.float32), rows.tolist()):
        assert refusal(lambda wrong=wrong: pool.scatter(0, "k", at, at, wrong)).kind == "kv-array"
    for layer, page in ((-1, at), (SHAPE.layers, at), (0, at.astype(float)), (0, at[:1])):
        assert refusal(lambda layer=layer, page=page: pool.scatter(layer, "k", page, at, rows)).kind == "page-address"
    assert refusal(lambda: PagedCache(pool, -1)).kind == "kv-option"
    pool.release(held)
    assert pool.free_pages == 4


def test_the_radix_cache_takes_over_only_what_is_out_and_once() -> None:
    pool = PagePool(F32(), SHAPE, 6, 2)
    radix = RadixCache(pool)
    assert refusal(lambda: radix.insert([1, 2, 3, 4], [0, 1])).kind == "page-address", "nobody holds them"
    held = pool.allocate(2)
    assert refusal(lambda: radix.insert([1, 2, 3, 4], [held[0], held[0]])).kind == "page-address"
    radix.insert([1, 2, 3, 4], held)
    assert radix.insert([1, 2, 3, 4], held).pages == held, "again: nothing changes"
    assert refusal(lambda: radix.insert([1, 2, 3, 4], held[::-1])).kind == "radix-pages"
    assert refusal(lambda: radix.insert([5, 6], held[:1])).kind == "radix-pages"
    assert (pool.free_pages, radix.cached_pages, radix.match([1, 2, 3, 4]).pages) == (4, 2, held)
    node = radix.match([1, 2, 3, 4]).node
    radix.evict(2)
    assert refusal(lambda: radix.unlock(node)).kind == refusal(lambda: radix.lock(node)).kind == "radix-evicted"
