"""The forward pass: one result however the tokens are cut, a trace that is the graph, and refusals before compute."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tritgold
import tritgold_conformance
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ModelConfig
from tritgold.errors import ContextError, NonFiniteError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import Arithmetic
from tritgold.layers.attention import softmax_weights
from tritgold.model import forward
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.trace import Trace
from tritgold.weights import LINEARS, LayerWeights, ModelWeights

SMALL = Shape(hidden=48, inter=80, layers=2, heads=4, kv_heads=2, context=16)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("small")
    write_seeded_model(folder, SMALL)
    return open_checkpoint(folder)


class Matrix:
    """A DenseMatrix in memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        return self.values[index]


def llama(seed: int = 0) -> tuple[ModelConfig, ModelWeights]:
    """A Llama-style model in memory: SiLU, no sub-norms, untied, dividing scales, GQA 4:1, odd sizes."""
    rng = np.random.default_rng(seed)
    config = ModelConfig(
        vocab=37, hidden=24, inter=31, layers=2, heads=4, kv_heads=1, head_dim=6, context=20, norm_eps=1e-6,
        rope_theta=1e4, activation="silu", sub_norms=False, tied_head=False, scale_rule="divide",
    )  # fmt: skip

    def linear(name: str) -> InMemoryTernary:
        trits = rng.integers(-1, 2, config.linear_shape(name)).astype(np.int8)
        return InMemoryTernary(TernaryTensor(trits, np.asarray(rng.uniform(1, 3), np.float32)))

    def gain(width: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, width).astype(np.float32)

    layers = tuple(
        LayerWeights(
            attn_norm=gain(24), attn_sub_norm=None, ffn_norm=gain(24), ffn_sub_norm=None,
            **{name: linear(name) for name in LINEARS},
        )
        for _ in range(2)
    )  # fmt: skip
    embedding, head = (Matrix(rng.standard_normal((37, 24)).astype(np.float32)) for _ in range(2))
    return config, ModelWeights(embedding, layers, gain(24), head)


def in_pieces(
    tokens: list[int], pieces: list[int], weights: ModelWeights, config: ModelConfig, block: int = 1
) -> Trace:
    trace, cache = Trace(), Float32Cache(config, len(tokens))
    start = 0
    for size in pieces:
        forward(tokens[start : start + size], weights, config, cache, trace, block=block)
        start += size
    return trace


def cuts(total: int) -> Iterator[list[int]]:
    yield [total]
    yield [1] * total
    yield [total - 1, 1]
    yield [3, *[2] * ((total - 3) // 2), *[1] * ((total - 3) % 2)]


def test_prefill_chunks_and_single_steps_give_the_same_bits(checkpoint: Checkpoint) -> None:
    tokens = list(range(40, 52))
    digests = {in_pieces(tokens, p, checkpoint.weights, checkpoint.config).digest() for p in cuts(12)}
    assert len(digests) == 1


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1000), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_the_same_over_random_llama_style_models(seed: int, pieces: list[int]) -> None:
    config, weights = llama(seed)
    tokens = np.random.default_rng(seed).integers(0, 37, sum(pieces)).tolist()
    whole = in_pieces(tokens, [len(tokens)], weights, config)
    assert in_pieces(tokens, pieces, weights, config).digest() == whole.digest()


def test_a_token_never_depends_on_what_follows(checkpoint: Checkpoint) -> None:
    c, w = checkpoint.config, checkpoint.weights
    whole = forward([5, 6, 7, 8], w, c)
    assert np.array_equal(forward([5, 6, 200, 201], w, c)[:2], whole[:2])
    assert not np.array_equal(forward([9, 6, 7, 8], w, c)[1:], whole[1:]), "and it does depend on what precedes"


@pytest.mark.parametrize("pieces", [[4, 4, 4, 2], [8, 6], [4, 10], [12, 2]])
def test_blocks_one_by_one_and_in_one_go_give_the_same_bits(checkpoint: Checkpoint, pieces: list[int]) -> None:
    """The last block may be short; a cut inside a block hides its later tokens from the earlier ones."""
    c, w, tokens = checkpoint.config, checkpoint.weights, list(range(40, 54))
    whole = in_pieces(tokens, [14], w, c, block=4)
    assert in_pieces(tokens, pieces, w, c, block=4).digest() == whole.digest()
    assert whole.mode != in_pieces(tokens, [14], w, c).mode == "golden/1"
    cut = in_pieces(tokens, [2, 12], w, c, block=4)
    assert not np.array_equal(cut["logits"][:2], whole["logits"][:2])


@pytest.mark.parametrize(("block", "changed"), [(1, [3]), (2, [2, 3]), (3, [3]), (4, [0, 1, 2, 3]), (99, [0, 1, 2, 3])])
def test_the_last_token_reaches_its_block_and_nothing_before(
    checkpoint: Checkpoint, block: int, changed: list[int]
) -> None:
    """Causal for 1, full attention from as many positions as tokens on."""
    one, other = (forward([5, 6, 7, last], checkpoint.weights, checkpoint.config, block=block) for last in (8, 200))
    assert np.flatnonzero((one != other).any(axis=1)).tolist() == changed


def test_a_causal_replacement_of_the_softmax_serves_a_causal_pass(checkpoint: Checkpoint) -> None:
    def causal(q: np.ndarray, k: np.ndarray, start: int) -> np.ndarray:
        return softmax_weights(q, k, start)

    c, w = checkpoint.config, checkpoint.weights
    assert np.array_equal(forward([1, 2], w, c, arithmetic=Arithmetic(softmax_weights=causal)), forward([1, 2], w, c))
    with pytest.raises(TypeError, match="block"):
        forward([1, 2], w, c, arithmetic=Arithmetic(softmax_weights=causal), block=2)


def test_last_only_saves_work_and_changes_nothing(checkpoint: Checkpoint) -> None:
    c, w = checkpoint.config, checkpoint.weights
    assert np.array_equal(forward([1, 2, 3], w, c, last_only=True), forward([1, 2, 3], w, c)[-1:])


@pytest.mark.parametrize("rows", [[], [1], [2, 0], [0, 1, 2]])
def test_the_logits_of_some_rows_are_theirs_among_all(checkpoint: Checkpoint, rows: list[int]) -> None:
    c, w = checkpoint.config, checkpoint.weights
    assert np.array_equal(forward([1, 2, 3], w, c, rows=rows), forward([1, 2, 3], w, c)[rows])


def test_tied_head_equals_an_explicit_copy_and_an_untied_one_differs() -> None:
    config, weights = llama()
    tied = replace(config, tied_head=True)
    as_tied = forward([1, 2], replace(weights, head=None), tied)
    assert np.array_equal(as_tied, forward([1, 2], replace(weights, head=weights.embedding), config))
    assert not np.array_equal(as_tied, forward([1, 2], weights, config))


@pytest.mark.parametrize("tokens", [[], [259], [-1], [1.5], [[1]], ["a"]])
def test_bad_tokens_are_refused_before_compute(checkpoint: Checkpoint, tokens: list[int]) -> None:
    with pytest.raises(ContextError):
        forward(tokens, checkpoint.weights, checkpoint.config)


@pytest.mark.parametrize(("count", "fits"), [(15, True), (16, True), (17, False)])
def test_exactly_context_tokens_fit(checkpoint: Checkpoint, count: int, fits: bool) -> None:
    if fits:
        assert forward([1] * count, checkpoint.weights, checkpoint.config).shape == (count, 259)
        return
    with pytest.raises(ContextError, match="found 17 tokens, expected at most 16"):
        forward([1] * count, checkpoint.weights, checkpoint.config)


def test_context_counts_what_the_cache_holds_and_a_refusal_loses_nothing(checkpoint: Checkpoint) -> None:
    c, w = checkpoint.config, checkpoint.weights
    cache = Float32Cache(c, 16)
    forward([1] * 15, w, c, cache)
    with pytest.raises(ContextError):
        forward([1, 1], w, c, cache)
    assert cache.length == 15
    forward([1], w, c, cache)
    small = Float32Cache(c, 2)
    with pytest.raises(ContextError, match="KV cache is full"):
        forward([1, 1, 1], w, c, small)
    assert small.length == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_non_finite_activations_are_named_and_the_cache_stays_as_it_was(checkpoint: Checkpoint, value: float) -> None:
    c, w = checkpoint.config, checkpoint.weights
    broken = replace(w.layers[1], ffn_norm=np.full_like(w.layers[1].ffn_norm, value))
    cache = Float32Cache(c, 16)
    with pytest.raises(NonFiniteError, match=r"layers\.1\.(ffn_in|down_in): activations of token 0 are not finite"):
        forward([1, 2], replace(w, layers=(w.layers[0], broken)), c, cache)
    assert cache.length == 0


def test_a_damaged_head_is_refused_and_nothing_is_returned() -> None:
    config, weights = llama()
    spoiled = weights.head.rows(slice(None)).copy()  # type: ignore[union-attr]
    spoiled[7, 3] = np.inf
    cache = Float32Cache(config, 4)
    with pytest.raises(NonFiniteError, match="logits: are not finite"):
        forward([1, 2], replace(weights, head=Matrix(spoiled)), config, cache)
    assert cache.length == 0


def test_weights_know_their_linears(checkpoint: Checkpoint) -> None:
    names = [name for name, _ in checkpoint.weights.linears()]
    assert names[:8] == [*(f"layers.0.{n}" for n in LINEARS), "layers.1.q"]
    with pytest.raises(KeyError):
        checkpoint.weights.layers[0].linear("attn_norm")


def test_every_field_of_the_configuration_is_read_somewhere() -> None:
    """A field that nothing reads would be silently ignored by engines that carry it."""
    folders = [Path(tritgold.__file__).parent, Path(tritgold_conformance.__file__).parent]
    files = [p for folder in folders for p in folder.rglob("*.py") if p.name != "config.py"]
    source = "".join(p.read_text() for p in files)
    fields = ModelConfig.__dataclass_fields__
    assert [f for f in fields if not re.search(rf"\.{f}\b", source)] == []
    assert not re.search(r"\.no_such_field\b", source), "the check can fail"
