"""Rules by name, and in a forward pass: the golden bits where nothing is dropped, prefill equal to steps, counts."""

from typing import Any

import numpy as np
import pytest
from refusals import refusal

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import ConfigError, NonFiniteError
from tritgold.golden import embedded_model
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold.quantize import absmax_int8
from tritgold.sparsity.activation import PLACES
from tritgold.sparsity.base import Tally
from tritgold.sparsity.rules import SPARSITY_RULES, sparsity_rule
from tritgold.trace import Trace

TOKENS = [256, 72, 101, 32, 115, 97, 105, 100, 44, 32]
SAME_AS_DENSE: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("zero_skipping", {}),
    ("threshold", {"threshold": 0}),
    ("top_k", {"keep": 1}),
    ("adaptive", {"min_keep": 1, "max_keep": 1}),
    ("entropy", {"min_keep": 1, "max_keep": 1}),
    ("q_sparse", {"keep": 1, "rescale": False}),
    ("attention_top_k", {"keep": 1}),
    ("attention_threshold", {"threshold": 0}),
    ("attention_window", {"window": 1000}),
    ("attention_dynamic", {"min_keep": 1, "max_keep": 1}),
]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    with embedded_model("seeded") as path:
        return open_checkpoint(path)


def run(checkpoint: Checkpoint, arithmetic: Arithmetic, pieces: tuple[int, ...] = (len(TOKENS),)) -> Trace:
    trace, cache, at = Trace(), Float32Cache(checkpoint.config, len(TOKENS)), 0
    for size in pieces:
        tokens = TOKENS[at : at + size]
        forward(tokens, checkpoint.weights, checkpoint.config, cache, trace, arithmetic=arithmetic)
        at += size
    return trace


@pytest.mark.parametrize(("name", "options"), SAME_AS_DENSE, ids=str)
def test_a_rule_that_drops_nothing_is_the_golden_model(
    checkpoint: Checkpoint, name: str, options: dict[str, Any]
) -> None:
    trace = run(checkpoint, sparsity_rule(name, **options).arithmetic())
    assert trace.digest() == run(checkpoint, GOLDEN_ARITHMETIC).digest()
    assert trace.mode == "altered-golden/1"


def test_every_rule_has_a_case_above_or_can_have_none() -> None:
    assert SPARSITY_RULES.keys() - {name for name, _ in SAME_AS_DENSE} == {"a4_8"}


@pytest.mark.parametrize("name", sorted(SPARSITY_RULES))
def test_prefill_and_steps_agree_but_for_the_rule_that_looks_at_the_batch(checkpoint: Checkpoint, name: str) -> None:
    rule = sparsity_rule(name)
    whole = run(checkpoint, rule.arithmetic())
    steps = run(checkpoint, rule.arithmetic(), pieces=(4, 1, 5))
    assert (steps.digest() == whole.digest()) == (name != "adaptive")
    golden = run(checkpoint, GOLDEN_ARITHMETIC).digest()
    # 10 tokens lie within one window; every other rule drops something of them by its defaults.
    assert (whole.digest() == golden) == (name in ("none", "zero_skipping", "attention_window"))


def test_the_tally_counts_the_codes_that_reached_the_linears(checkpoint: Checkpoint) -> None:
    tally = Tally()
    trace = run(checkpoint, sparsity_rule("top_k", keep=0.3).arithmetic(tally=tally), pieces=(6, 4))
    for place in PLACES:
        codes = np.concatenate([trace[f"layers.{n}.{place}.codes"] for n in range(checkpoint.config.layers)])
        assert tally.sparsity(place) == (codes == 0).mean()
        assert tally.of[place] == codes.size
        assert tally.sparsity(place) >= 0.7
    assert tally.sparsity("down_in") > 0.7, "measured, not nominal: zeros of the squared ReLU and of rounding count"
    assert Tally().sparsity() == 0


def test_the_tally_counts_weights_among_the_keys_that_are_seen(checkpoint: Checkpoint) -> None:
    tally = Tally()
    trace = run(checkpoint, sparsity_rule("attention_top_k", k=2).arithmetic(tally=tally))
    c = checkpoint.config
    assert tally.of == {"probs": c.layers * c.heads * sum(range(1, 11))}
    assert tally.kept == {"probs": c.layers * c.heads * (1 + 2 * 9)}
    assert sum(np.count_nonzero(trace[f"layers.{n}.probs"]) for n in range(c.layers)) == tally.kept["probs"]


def test_rules_combine(checkpoint: Checkpoint) -> None:
    first, second = sparsity_rule("top_k", keep=0.5), sparsity_rule("attention_top_k", k=3)
    one, other = (run(checkpoint, a.arithmetic(b.arithmetic())) for a, b in ((first, second), (second, first)))
    assert one.digest() == other.digest()
    alone = run(checkpoint, first.arithmetic()), run(checkpoint, second.arithmetic())
    assert one.digest() not in [trace.digest() for trace in alone]


def test_a4_8_finds_its_places_again_after_a_pass_that_ended_early(checkpoint: Checkpoint) -> None:
    """The first quantiser of a pass is attn_in, even where the pass before ended at o_in."""
    calls: list[int] = []

    def failing_once(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(1)
        if len(calls) == 1:
            raise NonFiniteError("stopped here", kind="test")
        return absmax_int8(x)

    arithmetic = sparsity_rule("a4_8").arithmetic(Arithmetic(quantize=failing_once))
    error = refusal(lambda: run(checkpoint, arithmetic))
    assert error.thing == "layers.0.o_in"
    again = run(checkpoint, arithmetic)
    assert again.digest() == run(checkpoint, sparsity_rule("a4_8").arithmetic()).digest()
    assert np.abs(again["layers.0.attn_in.codes"]).max() <= 8 < np.abs(again["layers.0.o_in.codes"]).max()
    assert np.count_nonzero(again["layers.0.o_in.codes"], axis=1).max() <= checkpoint.config.q_width // 2


def test_an_unknown_rule_is_refused_with_the_valid_list() -> None:
    error = refusal(lambda: sparsity_rule("topk"))
    assert isinstance(error, ConfigError)
    assert error.kind == "unknown-sparsity"
    assert all(name in str(error) for name in SPARSITY_RULES)


def test_an_unknown_option_is_refused_with_the_valid_list() -> None:
    error = refusal(lambda: sparsity_rule("attention_window", widow=3))
    assert error.kind == "sparsity-option"
    assert "'widow'" in str(error)
    assert "window, global_tokens, stride" in str(error)
    assert "none" in str(refusal(lambda: sparsity_rule("zero_skipping", keep=1)))
    for name, switch in (("q_sparse", "rescale"), ("adaptive", "drops_feature_0"), ("attention_top_k", "causal")):
        error = refusal(lambda name=name, switch=switch: sparsity_rule(name, **{switch: "no"}))  # type: ignore[misc]
        assert (error.kind, error.expected) == ("sparsity-option", "true or false")
