"""One pass over several sequences: each activation is what it is alone, and an engine for which it is not fails."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_diffusion import prompt_of
from refusals import refusal
from serving_cases import OPENED

from tritgold.decode.batched_forward import Part, forward_parts
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.paged import PagedCache, PagePool
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold.quantize import absmax_int8
from tritgold.trace import Trace

WEIGHTS, CONFIG = OPENED.weights, OPENED.config


def parts_of(lengths: list[tuple[int, int]], scheme: str = "f32", pages: int = 60) -> list[Part]:
    """For each (past, new): past tokens read already, new ones to come; pages of the sequences interleave."""
    pool = PagePool(kv_scheme(scheme), CONFIG, pages, page_size=3)
    parts = []
    for n, (past, new) in enumerate(lengths):
        cache, tokens = PagedCache(pool, 64), prompt_of(n, past + new)
        if past:
            forward(tokens[:past], WEIGHTS, CONFIG, cache)
        parts.append(Part(tokens[past:], cache, wanted=n % 3 != 1, trace=Trace()))
    return parts


def by_themselves(lengths: list[tuple[int, int]], scheme: str = "f32") -> list[Trace]:
    """The same tokens, one sequence after the other, in contiguous caches."""
    traces = [Trace() for _ in lengths]
    for n, ((past, new), trace) in enumerate(zip(lengths, traces, strict=True)):
        cache, tokens = kv_scheme(scheme).cache(CONFIG, 64), prompt_of(n, past + new)
        if past:
            forward(tokens[:past], WEIGHTS, CONFIG, cache)
        forward(tokens[past:], WEIGHTS, CONFIG, cache, trace, rows=[] if n % 3 == 1 else [new - 1])
    return traces


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=4),
    st.sampled_from(["f32", "int8", "fp8_e4m3", "bf16"]),
)
def test_every_activation_is_that_of_the_sequence_alone(lengths: list[tuple[int, int]], scheme: str) -> None:
    parts, alone = parts_of(lengths, scheme), by_themselves(lengths, scheme)
    logits = forward_parts(parts, WEIGHTS, CONFIG)
    for part, trace, rows, (past, new) in zip(parts, alone, logits, lengths, strict=True):
        assert part.trace is not None
        assert rows.tobytes() == trace["logits"].tobytes()
        assert part.trace.digest() == trace.digest()
        assert (part.trace.mode, part.trace.engine, part.trace.tokens) == (trace.mode, "tritgold", trace.tokens)
        assert part.cache.length == past + new


def test_more_rows_than_the_model_has_positions() -> None:
    """The context is a limit of each sequence, not of a pass: 3 x 30 rows at 64 positions."""
    lengths = [(0, 30), (30, 30), (34, 30)]
    parts = parts_of(lengths)
    forward_parts(parts, WEIGHTS, CONFIG)
    assert [part.trace.digest() for part in parts if part.trace] == [trace.digest() for trace in by_themselves(lengths)]


def one_scale_for_all(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation scale of the largest row, for every row: what engines do that quantise a pass as a whole."""
    scale = absmax_int8(x)[1].min()
    return np.rint(x * scale).astype(np.int8), np.full(len(x), scale, np.float32)


@pytest.mark.parametrize(
    ("fault", "differs"),
    [
        (Arithmetic(quantize=one_scale_for_all), True),
        (Arithmetic(mix_values=lambda w, v: GOLDEN_ARITHMETIC.mix_values(w, v)[:, ::-1]), False),
    ],
)
def test_an_engine_whose_rows_depend_on_each_other_is_told_apart(fault: Arithmetic, differs: bool) -> None:
    """The second is as wrong, but each row by itself: it is wrong alone in the same way."""
    lengths = [(0, 1), (0, 1)]  # a row each, so that alone a scale of the pass is one of the row
    together = parts_of(lengths)
    forward_parts(together, WEIGHTS, CONFIG, fault)
    alone = [Trace(), Trace()]
    for part, trace in zip(parts_of(lengths), alone, strict=True):
        forward_parts([replace(part, trace=trace)], WEIGHTS, CONFIG, fault)
    codes = "layers.1.attn_in.codes"
    same = [
        np.array_equal(part.trace[codes], trace[codes])
        for part, trace in zip(together, alone, strict=True)
        if part.trace
    ]
    assert (False in same) is differs
    assert alone[0].mode == "altered-golden/1"


def test_a_pool_too_small_for_all_parts_is_refused_and_nothing_is_read() -> None:
    parts = parts_of([(3, 2), (3, 2)], pages=3)
    assert refusal(lambda: forward_parts(parts, WEIGHTS, CONFIG)).kind == "no-free-page"
    for part in parts:
        assert part.trace is not None
        assert (part.cache.length, part.trace.arrays, len(part.cache.table)) == (3, {}, 1)
    forward_parts(parts[:1], WEIGHTS, CONFIG)


def test_each_part_is_checked_before_any_is_read() -> None:
    for kind, past, new, token in (
        ("context-length", 60, 5, 0),
        ("token-id", 3, 2, CONFIG.vocab),
        ("no-tokens", 3, 0, 0),
    ):
        parts = parts_of([(2, 2), (past, 1)])
        parts[1] = replace(parts[1], tokens=[token] * new)
        assert refusal(lambda parts=parts: forward_parts(parts, WEIGHTS, CONFIG)).kind == kind  # type: ignore[misc]
        assert parts[0].cache.length == 2
    assert forward_parts([], WEIGHTS, CONFIG) == []
