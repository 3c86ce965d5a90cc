"""L1: attention in three steps (rotation, softmax weights, mix), and every KV cache scheme."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tritgold.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold_conformance.case_vectors.allowed import OfRow
from tritgold_conformance.case_vectors.draft import EXACT, Draft, Group, floats
from tritgold_conformance.comparing.compare import Tolerance
from tritgold_conformance.comparing.tolerance import mix_tolerance, rotation_tolerance, softmax_tolerance

LAST = 4095  # in a context of 4096: float32 angles have lost five digits there
HEADS = ((1, 1), (4, 2), (6, 3), (4, 1), (3, 3))  # query heads, key heads


def groups() -> Iterator[Group]:
    """rope, softmax, mix, kv."""
    for name, about, drafts in (
        ("rope", "Rotation by position, first half of a head with the second.", _rotated()),
        ("softmax", "Softmax weights over the keys that a token sees.", _weighted()),
        ("mix", "Values weighted and summed, heads side by side.", _mixed()),
        ("kv", "Keys and values stored by a scheme, and read back.", _kept()),
    ):
        yield Group(f"operations/{name}", "operations", about, [*drafts])


def _rope(name: str, why: str, x: Any, positions: list[int], theta: float, seed: int | None = None) -> Draft:
    values, at = np.asarray(x, np.float32), np.asarray(positions, np.int64)
    allowed = {"x": rotation_tolerance(values, at, theta)}
    return Draft(name, "rope", why, {"theta": theta}, {"x": values, "positions": at}, seed, allowed)


def _rotated() -> Iterator[Draft]:
    one = [[[1, 0, 0, 0]]]
    yield _rope("by-hand", "head of 4, position 1: 0.5403, 0, 0.8415, 0; pairs of neighbours give 0.5403, 0.8415, 0, 0",
                one, [1], 1e4)  # fmt: skip
    yield _rope("position-0", "position 0 turns nothing", floats(6000, (1, 3, 6)), [0], 5e5, 6000)
    for theta in (1e4, 5e5):
        x = floats(6001, (3, 4, 10))
        yield _rope(f"theta-{theta:.0e}", "positions 0, 1 and the last", x, [0, 1, LAST], theta, 6001)
    yield _rope("prefill", "positions 0 to 6 in one pass", floats(6002, (7, 2, 8)), [*range(7)], 5e5, 6002)
    yield _rope("step", "one token at position 37: a step counts from where the cache ends", floats(6003, (1, 2, 8)),
                [37], 5e5, 6003)  # fmt: skip


def _softmax(name: str, why: str, q: np.ndarray, k: np.ndarray, seed: int | None, start: int = 0) -> Draft:
    allowed: dict[str, Tolerance] = {"x": softmax_tolerance(q, k, start)}
    return Draft(name, "softmax", why, {"start": start}, {"q": q, "k": k}, seed, allowed)


def _weighted() -> Iterator[Draft]:
    for heads, kv_heads in HEADS:
        q, k = floats(6100 + heads, (5, heads, 6), 2.0), floats(6150 + kv_heads, (5, kv_heads, 6), 2.0)
        why = f"{heads} query heads over {kv_heads} key heads: consecutive ones share a key head"
        yield _softmax(f"heads-{heads}-over-{kv_heads}", why, q, k, 6100 + heads)
    for name, seed, queries, keys, start, why in (
        ("position-0", 6200, 1, 1, 0, "one token sees itself: 1"),
        ("step", 6202, 1, 20, 19, "the last of 20 positions sees all of them"),
        ("chunk", 6204, 3, 9, 6, "three tokens after six: the mask begins where the chunk does"),
    ):
        q, k = floats(seed, (queries, 4, 8), 2.0), floats(seed + 1, (keys, 2, 8), 2.0)
        yield _softmax(name, why, q, k, seed, start)
    size = np.float32(np.sqrt(200 / np.sqrt(8)))
    q = np.full((4, 2, 8), size, np.float32)
    k = np.full((4, 1, 8), size, np.float32) * np.array([1, 0.5, 0, -1], np.float32)[:, None, None]
    yield _softmax("scores-of-200", "scores 200, 100, 0, -200: e^200 is beyond float32", q, k, None)
    zero = np.zeros((3, 2, 6), np.float32)
    yield _softmax("equal-scores", "scores of 0: 1, halves, thirds", zero, zero[:, :1], None)


def _mixed() -> Iterator[Draft]:
    for heads, kv_heads in HEADS:
        probs = np.tril(np.abs(floats(6300 + heads, (heads, 5, 5)))).astype(np.float32)
        v = floats(6350 + kv_heads, (5, kv_heads, 6), 3.0)
        why = f"{heads} query heads over values of {kv_heads}"
        yield Draft(f"heads-{heads}-over-{kv_heads}", "mix", why, {}, {"probs": probs, "v": v}, 6300 + heads,
                    {"x": mix_tolerance(probs, v)})  # fmt: skip


# ---- KV caches ---------------------------------------------------------------------------------------------------

_OURS = OfRow(2e-5, "the random matrices of the golden model in float64; an engine's own matrices are others")
_FLOATS: dict[str, Tolerance] = {"k": _OURS, "v": _OURS}
_KIVI = {"group": 8, "window": 8}
# Scheme, options, chunks in which the tokens come, tolerance.
SCHEME_CASES: tuple[tuple[str, dict[str, Any], tuple[int, ...], dict[str, Tolerance]], ...] = (
    *((name, {}, (4, 1, 1, 1), {}) for name in SCHEMES if name not in ("kivi2", "kivi4", "hadamard", "turboquant")),
    ("fake_fp8", {"overwrite": False}, (4, 1, 1, 1), {}),
    ("fp8_e4m3", {"k_scale": 0.37, "v_scale": 2.6}, (4, 1, 1, 1), {}),
    ("affine", {"bits": 3, "symmetric": True}, (4, 1, 1, 1), {}),
    *((name, _KIVI, (9, 1, 7), {}) for name in ("kivi2", "kivi4")),
    ("hadamard", {}, (4, 1, 1, 1), _FLOATS),
    ("hadamard", {"inner": "q4_0"}, (4, 1, 1, 1), _FLOATS),
    ("turboquant", {}, (4, 1, 1, 1), _FLOATS),
    ("turboquant", {"bits": 3, "keys": "product"}, (4, 1, 1, 1), _FLOATS),
)


def _kept() -> Iterator[Draft]:
    for name, options, chunks, allowed in SCHEME_CASES:
        said = "".join(f"-{key}-{value}" for key, value in options.items()).replace("_", "-").replace(".", "")
        parameters = {"scheme": name, "options": options, "chunks": list(chunks)}
        k, v = keys_and_values(sum(chunks))
        why = f"{name}: zeros, tiny values, an outlier and one sign among ordinary tokens, in chunks and single steps"
        exact = dict.fromkeys(("k", "v", "k_bytes", "v_bytes"), EXACT)
        label = f"{name.replace('_', '-')}{said}"
        yield Draft(label, "kv", why, parameters, {"k": k, "v": v}, 6400,
                    {**exact, **allowed}, ("k_bytes", "v_bytes"))  # fmt: skip
        yield from _loaded(label, {"scheme": name, "options": options}, allowed)


def _loaded(name: str, parameters: dict[str, Any], allowed: dict[str, Tolerance]) -> Iterator[Draft]:
    """Cases that only read bytes, for schemes that store each token separately."""
    scheme = kv_scheme(parameters["scheme"], **parameters["options"])
    if not isinstance(scheme, TokenScheme) or scheme.first is not None:
        return
    k, v = keys_and_values(7)
    stored = {"k_bytes": scheme.store(k, 0, "k"), "v_bytes": scheme.store(v, 0, "v")}
    shape = {"kv_heads": k.shape[1], "head_dim": k.shape[2]}
    why = "rows as stored, to be read: where this fails and storing does not, reading is wrong"
    yield Draft(f"{name}-load", "kv_load", why, {**parameters, **shape}, stored, 6400, allowed)


def keys_and_values(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """k and v float32 [tokens, 2, 64]."""
    k, v = floats(6400, (tokens, 2, 64), 3.0), floats(6401, (tokens, 2, 64), 0.5)
    for x in (k, v):
        x[1] = 0
        x[2] *= np.float32(1e-6)
        x[3, 0, 5] = -40
        x[5] = np.abs(x[5])
    return k, v
