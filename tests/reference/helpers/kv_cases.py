"""What the tests of KV caches share: schemes with a shape that all of them can hold, keys and values, passes."""

from collections.abc import Iterable

import numpy as np

from tritgold.kv_cache.base import KvCache, KvScheme, Sizes
from tritgold.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold.kv_cache.token_rows import TokenScheme

SHAPE = Sizes(layers=2, kv_heads=2, head_dim=64)
NARROW = {"window": 32}  # a KIVI window small enough for short sequences to leave it
ALL = [kv_scheme(name, **(NARROW if name.startswith("kivi") else {})) for name in SCHEMES] + [
    kv_scheme("bf16", rounding="truncate"),
    kv_scheme("fp8_e4m3", k_scale=0.5, v_scale=(2.0, 0.25)),
    kv_scheme("fake_fp8", overwrite=False),
    kv_scheme("q8_0", kernel="avx2"),
    kv_scheme("q4_0", fused=True),
    kv_scheme("affine", bits=3, symmetric=True, clip=0.9, per="token"),
    kv_scheme("hadamard", inner="q4_0"),
    kv_scheme("turboquant", bits=3, keys="product", seed=5),
    kv_scheme("split", k="int8", v="f32"),
]
BY_TOKEN = [scheme for scheme in ALL if isinstance(scheme, TokenScheme)]


def scheme_id(scheme: object) -> str | None:
    """For pytest's ids."""
    return scheme.id if isinstance(scheme, KvScheme) else None


def random_kv(tokens: int, seed: int = 0, shape: Sizes = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values float32 [tokens, kv_heads, head_dim], tokens of very different size among them."""
    rng = np.random.default_rng(seed)
    size = (tokens, shape.kv_heads, shape.head_dim)
    k, v = (rng.standard_normal(size) * 10 ** rng.uniform(-2, 2, (tokens, 1, 1)) for _ in "kv")
    return k.astype(np.float32), v.astype(np.float32)


def fill(cache: KvCache, k: np.ndarray, v: np.ndarray, passes: Iterable[int], layer: int = 0) -> list[np.ndarray]:
    """Append in passes of so many tokens, after what is there; what the last pass gave back."""
    start, seen = 0, []
    for tokens in passes:
        seen = list(cache.append(layer, k[start : start + tokens], v[start : start + tokens]))
        cache.advance(tokens)
        start += tokens
    assert start == len(k)
    return seen


def read(cache: KvCache, layer: int = 0, shape: Sizes = SHAPE) -> list[np.ndarray]:
    """Everything a cache holds, by appending nothing."""
    nothing = np.zeros((0, shape.kv_heads, shape.head_dim), np.float32)
    return list(cache.append(layer, nothing, nothing))
