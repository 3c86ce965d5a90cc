"""The registry, and what every scheme owes its caller."""

import re

import numpy as np
import pytest
from kv_cases import ALL, BY_TOKEN, SHAPE, fill, random_kv, read, scheme_id

from tritgold.errors import ConfigError, ContextError, NonFiniteError
from tritgold.kv_cache.base import KvScheme, Sizes
from tritgold.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold.kv_cache.token_rows import TokenScheme

EACH = pytest.mark.parametrize("scheme", ALL, ids=scheme_id)
LOSSY = pytest.mark.parametrize("scheme", [s for s in ALL if s.id != "f32"], ids=scheme_id)


def same(got: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() and a.shape == b.shape for a, b in zip(got, wanted, strict=True))


def test_the_names() -> None:
    assert list(SCHEMES) == [
        "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "fake_fp8", "q8_0", "q5_0", "q4_1", "q4_0", "kivi2",
        "kivi4", "affine", "hadamard", "turboquant", "a4_8", "split",
    ]  # fmt: skip
    assert all(kv_scheme(name).id == name for name in SCHEMES)


def test_an_unknown_name_is_answered_with_the_list() -> None:
    with pytest.raises(ConfigError, match="found 'q8', expected f32, f16, bf16, fp8_e4m3") as refused:
        kv_scheme("q8")
    assert refused.value.kind == "unknown-kv-scheme"
    assert all(name in str(refused.value) for name in SCHEMES)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("q8_0", {"group": 3}, "q8_0 has no such option: found group, expected kernel"),
        ("f16", {"bits": 3, "clip": 1}, "f16 has no such option: found bits, clip, expected none"),
        ("affine", {"clip": "x"}, "affine clip: is not usable: found 'x'"),
        ("kivi2", {"bits": 4}, "kivi2 has no such option: found bits, expected group, window"),
        ("fp8_e4m3", {"k_scale": "x"}, "fp8_e4m3 k_scale: is not usable: found 'x'"),
        ("affine", {"symmetric": "no"}, "affine symmetric: is not usable: found 'no', expected true or false"),
        ("fake_fp8", {"overwrite": 0}, "fake_fp8 overwrite: is not usable: found 0, expected true or false"),
        ("hadamard", {"inner": "q9"}, "no such KV-cache scheme: found 'q9'"),
        ("split", {"k": "kivi2"}, "split k: is not usable: found Kivi2"),
    ],
)
def test_options_that_are_not_there(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        kv_scheme(name, **options)


def test_ids_tell_schemes_apart_and_fit_into_the_id_of_an_arithmetic() -> None:
    ids = [scheme.id for scheme in ALL]
    assert len(set(ids)) == len(ids)
    assert not [i for i in ids if "." in i or "/" in i or " " in i]
    assert kv_scheme("split", k=kv_scheme("affine", bits=3), v="q4_0").id == "split-k-affine-bits-3-v-q4_0"
    assert kv_scheme("kivi2", window=32).id == "kivi2-window-32"
    assert kv_scheme("hadamard", inner=kv_scheme("affine", clip=0.9)).id == "hadamard-inner-affine-clip-0_9"


@EACH
def test_all_layers_and_passes_in_their_places(scheme: KvScheme) -> None:
    """Layers filled side by side are as if they were alone; the loudest token is close to what was put in."""
    k, v = random_kv(12)
    cache = scheme.cache(SHAPE, 12)
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        cache.append(0, k[part], v[part])
        cache.append(1, v[part], k[part])
        cache.advance(k[part].shape[0])
    assert cache.length == 12
    alone = scheme.cache(SHAPE, 12)
    fill(alone, v, k, (5, 1, 6), layer=1)
    assert same(read(cache, 1), read(alone, 1))
    for layer, wanted in ((0, (k, v)), (1, (v, k))):
        for got, x in zip(read(cache, layer), wanted, strict=True):
            assert got.shape == x.shape
            assert got.dtype == np.float32
            loudest = 6 + int(np.argmax(np.abs(x[6:]).max(axis=(1, 2))))  # of the last pass, whose scale it may decide
            error = np.linalg.norm(got[loudest] - x[loudest]) / np.linalg.norm(x[loudest])
            assert error < (0.6 if "product" in scheme.id else 0.35)


@EACH
def test_truncation_and_going_another_way(scheme: KvScheme) -> None:
    k, v = random_kv(20)
    one, other = scheme.cache(SHAPE, 20), scheme.cache(SHAPE, 20)
    fill(one, k[:18], v[:18], (10, 8))
    one.truncate(19)
    assert one.length == 18
    one.truncate(10)
    fill(other, k[:10], v[:10], (10,))
    got, wanted = (fill(cache, v[10:], k[10:], (10,)) for cache in (one, other))
    assert same(got, wanted)
    one.truncate(0)
    other.truncate(0)
    assert same(fill(one, k, v, (20,)), fill(other, k, v, (20,)))


@EACH
def test_a_full_cache_refuses_and_stays_as_it_is(scheme: KvScheme) -> None:
    k, v = random_kv(6)
    cache = scheme.cache(SHAPE, 5)
    fill(cache, k[:4], v[:4], (4,))
    before = read(cache)
    cache.check_room(1)
    for act in (lambda: cache.append(0, k[:2], v[:2]), lambda: cache.check_room(2)):
        with pytest.raises(
            ContextError, match="the KV cache is full: found 6 positions, expected at most 5"
        ) as refused:
            act()
        assert refused.value.kind == "cache-full"
    assert same(read(cache), before)
    fill(cache, k[4:5], v[4:5], (1,))
    assert cache.length == 5


@LOSSY
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_infinity_and_nan_are_named_and_nothing_is_kept(scheme: KvScheme, value: float, side: int) -> None:
    k, v = random_kv(6)
    cache = scheme.cache(SHAPE, 6)
    fill(cache, k[:3], v[:3], (3,), layer=1)
    before = read(cache, 1)
    (k, v)[side][4, 1, 7] = value
    message = rf"layers\.1\.{'kv'[side]}: token 1 of the pass is not finite in head 1, channel 7: found -?(nan|inf)"
    with pytest.raises(NonFiniteError, match=message) as refused:
        cache.append(1, k[3:], v[3:])
    assert refused.value.kind == "kv-non-finite"
    assert same(read(cache, 1), before)


def test_the_exact_cache_keeps_what_it_is_given() -> None:
    k, v = random_kv(3)
    k[1, 0, 0], v[2, 1, 3] = np.nan, -np.inf
    assert same(fill(kv_scheme("f32").cache(SHAPE, 3), k, v, (2, 1)), [k, v])


@pytest.mark.parametrize("scheme", BY_TOKEN, ids=scheme_id)
def test_a_token_is_read_as_it_would_be_alone(scheme: TokenScheme) -> None:
    """Prefill, chunks and single steps: one result."""
    k, v = random_kv(9)
    wanted = fill(scheme.cache(SHAPE, 9), k, v, (9,))
    for passes in ((1,) * 9, (4, 5), (8, 1)):
        assert same(fill(scheme.cache(SHAPE, 9), k, v, passes), wanted)
    for side, x, got in (("k", k, wanted[0]), ("v", v, wanted[1])):
        rows = scheme.store(x, 0, side)  # type: ignore[arg-type]
        assert rows.dtype == np.uint8
        assert rows.shape == (9, scheme.row_bytes(SHAPE, side))  # type: ignore[arg-type]
        alone = scheme.load(rows[5:6], SHAPE, 0, side)  # type: ignore[arg-type]
        assert np.array_equal(alone[0], got[5])
    assert scheme.store(k[:0]).shape == (0, scheme.row_bytes(SHAPE))


@EACH
def test_zeros_are_zeros(scheme: KvScheme) -> None:
    zero = np.zeros((3, 2, 64), np.float32)
    assert not any(x.any() for x in fill(scheme.cache(SHAPE, 3), zero, zero, (2, 1)))


@EACH
def test_arguments_are_left_untouched_and_may_be_strided(scheme: KvScheme) -> None:
    k, v = random_kv(4)
    k_view, v_view = (np.repeat(x, 2, axis=2)[:, :, ::2] for x in (k, v))
    got = fill(scheme.cache(SHAPE, 4), k_view, v_view, (4,))
    assert same([np.ascontiguousarray(k_view), np.ascontiguousarray(v_view)], [k, v])
    assert same(got, fill(scheme.cache(SHAPE, 4), k, v, (4,)))


@pytest.mark.parametrize("name", [n for n in SCHEMES if n not in ("q8_0", "q5_0", "q4_1", "q4_0", "split")])
@pytest.mark.parametrize("shape", [Sizes(1, 3, 6), Sizes(1, 1, 80), Sizes(1, 5, 2)])
def test_odd_heads_are_held_or_refused_by_name(name: str, shape: Sizes) -> None:
    k, v = random_kv(3, shape=shape)
    scheme = kv_scheme(name)
    if (name in ("hadamard", "kivi2", "kivi4") and shape.head_dim != 2) or name.startswith("kivi"):
        with pytest.raises(ConfigError, match=f"{name} cannot hold these heads: found {shape.kv_heads} heads of"):
            scheme.cache(shape, 3)
        return
    got = fill(scheme.cache(shape, 3), k, v, (2, 1))
    assert [x.shape for x in got] == [k.shape, v.shape]
