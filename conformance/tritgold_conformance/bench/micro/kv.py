"""The KV cache: a token stored, rows gathered, attention over all positions or over those with the largest weights."""

from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.paged import PagePool
from tritgold.layers.attention import mix_values, softmax_weights
from tritgold.sparsity.rules import sparsity_rule
from tritgold_conformance.bench.micro.way import Way, equal, near, of_xla
from tritgold_conformance.bench.shapes import SEED

PAGE, POOL = 16, 2048  # tokens of a page, and of the pool that rows are gathered from
FLOATS = "float32 sums in another order"
EDGE = "and another choice among weights that are nearly equal"
Case = dict[str, Any]


def _rows(config: ModelConfig, tokens: int, seed: int = 0) -> np.ndarray:
    shape = (tokens, config.kv_heads, config.head_dim)
    return np.random.default_rng(SEED + seed).standard_normal(shape).astype(np.float32)


def update(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """Tokens, [kv_heads, head_dim] each, stored in one layer and side."""
    scheme: Any = kv_scheme(case["kv"])
    one = Sizes(1, config.kv_heads, config.head_dim)
    x = _rows(config, case["tokens"])
    stored = np.zeros((POOL, scheme.row_bytes(one)), np.uint8)

    def store() -> np.ndarray:
        stored[100 : 100 + len(x)] = scheme.store(x)
        return stored[100 : 100 + len(x)]

    expected = scheme.load(scheme.store(x), one)
    ways = [Way("reference", "rows of bytes", store, equal(expected, lambda rows: scheme.load(rows, one)))]
    back = equal(expected, lambda read: read())
    return ways + (of_xla(xla.kv_update(x, case["kv"], POOL), back) if xla is not None else [])


def gather(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """Rows of one layer at positions in any order, as float32."""
    scheme: Any = kv_scheme(case["kv"])
    one, x = Sizes(1, config.kv_heads, config.head_dim), _rows(config, POOL)
    pool = PagePool(scheme, one, POOL // PAGE, PAGE)
    pages, slots = np.divmod(np.arange(POOL), PAGE)
    rows = scheme.store(x)
    pool.scatter(0, "k", pages, slots, rows)
    at = np.random.default_rng(SEED).integers(0, POOL, size=(int(case["tokens"]),))
    right = equal(scheme.load(rows[at], one))

    def paged() -> np.ndarray:
        return scheme.load(pool.gather(0, "k", at // PAGE, at % PAGE), one)

    def token_by_token() -> np.ndarray:
        return np.concatenate([scheme.load(rows[n : n + 1], one) for n in at])

    ways = [
        Way("paged", "all at once, out of pages", paged, right, moved=rows[at].nbytes),
        Way("token by token", "a loop in Python", token_by_token, right, moved=rows[at].nbytes),
    ]
    return ways + (of_xla(xla.kv_gather(x, case["kv"], at), right) if xla is not None else [])


def attention(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """One token over all positions of one layer."""
    c, context, scheme = config, case["context"], kv_scheme(case["kv"])
    one = Sizes(1, c.kv_heads, c.head_dim)
    k, v = _rows(c, context), _rows(c, context, 1)
    cache = scheme.cache(one, context)
    keys, values = cache.append(0, k, v)
    q = np.random.default_rng(SEED + 2).standard_normal((1, c.heads, c.head_dim)).astype(np.float32)

    def golden() -> np.ndarray:
        return mix_values(softmax_weights(q, keys, start=context - 1), values)

    right = near(golden(), 1e-5, FLOATS)
    moved = context * scheme.bytes_per_token(one)
    ways = [
        Way("reference", "golden, float64 sums in fixed order, of floats", golden, right, moved=moved),
        Way("float32", "two products for each group of heads, of floats", lambda: _dense(q, keys, values), right,
            moved=moved),
    ]  # fmt: skip
    return ways + (of_xla(xla.attention(q, k, v, case["kv"], moved), right) if xla is not None else [])


def _weights(q: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """[kv_heads, groups * queries, positions] of q [queries, heads, head_dim]; every query sees every key."""
    kv_heads = keys.shape[1]
    grouped = q.transpose(1, 0, 2).reshape(kv_heads, -1, q.shape[2])
    scores = grouped @ keys.transpose(1, 2, 0) / np.float32(np.sqrt(q.shape[2]))
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    return powers / powers.sum(axis=2, keepdims=True)


def _ungrouped(mixed: np.ndarray, q: np.ndarray) -> np.ndarray:
    return mixed.reshape(q.shape[1], q.shape[0], -1).transpose(1, 0, 2).reshape(q.shape[0], -1)


def _dense(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    return _ungrouped(_weights(q, keys) @ values.transpose(1, 0, 2), q)


def sparse_attention(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """Queries over the same positions: all of them, or for each query and head the largest quarter of the weights."""
    c, context = config, case["context"]
    k, v, kept = _rows(c, context), _rows(c, context, 1), max(1, context // 4)
    q = np.random.default_rng(SEED + 2).standard_normal((case["queries"], c.heads, c.head_dim)).astype(np.float32)
    golden = softmax_weights(q, k, start=context - 1)
    every = near(mix_values(golden, v), 1e-5, FLOATS)
    rule: Any = sparsity_rule("attention_top_k", k=kept)
    some = near(mix_values(rule.sparsify(golden, context - 1).values, v), 5e-3, f"{FLOATS}, {EDGE}")

    def least(weights: np.ndarray) -> np.ndarray:
        return np.partition(weights, context - kept, axis=2)[:, :, context - kept, None]

    def masked() -> np.ndarray:
        weights = _weights(q, k)
        weights = np.where(weights >= least(weights), weights, np.float32(0))
        return _ungrouped(weights / weights.sum(axis=2, keepdims=True) @ v.transpose(1, 0, 2), q)

    def gathered() -> np.ndarray:
        weights, heads = _weights(q, k), v.transpose(1, 0, 2)
        at = np.argpartition(weights, context - kept, axis=2)[:, :, context - kept :]
        largest = np.take_along_axis(weights, at, axis=2)
        largest /= largest.sum(axis=2, keepdims=True)
        mixed = np.stack([
            np.stack([row @ heads[h][where] for row, where in zip(largest[h], at[h], strict=True)])
            for h in range(len(heads))
        ])  # fmt: skip
        return _ungrouped(mixed, q)

    ways = [
        Way("dense", "all positions", lambda: _dense(q, k, v), every),
        Way("top-k, masked", f"{kept} of {context}, zeros multiplied", masked, some),
        Way("top-k, gathered", f"{kept} of {context}, their values alone", gathered, some),
    ]
    if xla is not None:
        whole, *sparse = xla.sparse_attention(q, k, v, kept)
        ways += of_xla([whole], every) + of_xla(sparse, some)
    return ways
