"""Two traces: noise and broken ties are explained, everything else is a divergence, the first one named."""

import numpy as np
import pytest

from tritgold_conformance.comparing.compare import place
from tritgold_conformance.comparing.free_running import NOISE, compare_traces

RNG = np.random.default_rng(0)
TOKENS = 6


def trace(tie_at: int | None = None) -> dict[str, np.ndarray]:
    """A miniature trace of one layer's beginning; with ``tie_at``, x * s of that token is a tie in channel 0."""
    x = RNG.standard_normal((6, 16)).astype(np.float32)
    x[:, 1] = 4.0  # the largest: s = 31.75
    if tie_at is not None:
        x[tie_at, 0] = np.float32(0.5 / 31.75)
    scale = (np.float32(127) / np.abs(x).max(axis=1)).astype(np.float32)
    codes = np.rint(x * scale[:, None]).astype(np.int8)
    weight = RNG.integers(-1, 2, (16, 8))
    acc = (codes.astype(np.int32) @ weight).astype(np.int32)
    probs = np.tril(np.ones((2, 6, 6), np.float32)) / np.arange(1, 7, dtype=np.float32)[None, :, None]
    return {
        "layers.0.attn_norm": x,
        "layers.0.attn_in.codes": codes,
        "layers.0.attn_in.scale": scale,
        "layers.0.q.acc": acc,
        "layers.0.q.out": acc / scale[:, None],
        "layers.0.probs": probs,
        "layers.0.attn_mix": RNG.standard_normal((6, 8)).astype(np.float32),
    }


def copy(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


def test_equal_traces_agree() -> None:
    golden = trace()
    outcome = compare_traces(golden, copy(golden), TOKENS)
    assert outcome.divergence is None
    assert outcome.compared == list(golden)
    assert not outcome.blind.any()


def test_noise_is_measured_and_its_limit_holds() -> None:
    golden = trace()
    engine = copy(golden)
    engine["layers.0.q.out"] += np.float32(NOISE / 4) * np.abs(golden["layers.0.q.out"]).max(axis=1, keepdims=True)
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is None
    assert 0 < outcome.worst < NOISE
    engine["layers.0.q.out"][3, 2] += np.abs(golden["layers.0.q.out"][3]).max() * 4 * NOISE
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is not None
    assert outcome.divergence.name == "layers.0.q.out"
    assert outcome.divergence.worst == [3, 2]


def diverges(golden: dict[str, np.ndarray], engine: dict[str, np.ndarray]) -> str:
    """Name of the first divergence; there must be one."""
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is not None
    return outcome.divergence.name


def broken(golden: dict[str, np.ndarray], token: int) -> dict[str, np.ndarray]:
    """The engine broke the tie of that token the other way; what follows is consistent with its own code."""
    engine = copy(golden)
    assert golden["layers.0.attn_in.codes"][token, 0] == 0  # half to even
    engine["layers.0.attn_in.codes"][token, 0] = 1
    engine["layers.0.q.acc"][token] += 1
    engine["layers.0.q.out"][token] = engine["layers.0.q.acc"][token] / golden["layers.0.attn_in.scale"][token]
    return engine


def test_a_broken_tie_is_named_and_what_sees_it_is_not_judged_further() -> None:
    golden = trace(tie_at=2)
    engine = broken(golden, 2)
    engine["layers.0.probs"][:, 4, 2] *= 1.5  # token 4 reads the key of token 2: blind, neither passed nor failed
    engine["layers.0.attn_mix"][4] *= 2
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is None
    assert [(t.name, t.position, t.channel, t.code) for t in outcome.ties] == [("layers.0.attn_in.codes", 2, 0, 1)]
    assert outcome.ties[0].from_tie < 1e-6
    assert outcome.blind.tolist() == [False, False, True, True, True, True]  # later positions attend to it


def test_what_sees_a_tie_is_known_without_the_attention_weights() -> None:
    golden = trace(tie_at=2)
    engine = broken(golden, 2)
    del engine["layers.0.probs"]
    engine["layers.0.attn_mix"][4] *= 2
    assert compare_traces(golden, engine, TOKENS).divergence is None
    engine["layers.0.attn_mix"][1] *= 2
    assert diverges(golden, engine) == "layers.0.attn_mix"


def test_the_same_difference_away_from_a_tie_is_a_divergence() -> None:
    golden = trace(tie_at=None)
    golden["layers.0.attn_norm"][2, 0] = 0.4 / 31.75
    golden["layers.0.attn_in.codes"][2, 0] = 0
    outcome = compare_traces(golden, broken(golden, 2), TOKENS)
    assert outcome.divergence is not None
    assert outcome.divergence.name == "layers.0.attn_in.codes"
    assert outcome.divergence.worst == [2, 0]


def test_a_tie_excuses_only_the_positions_that_see_it() -> None:
    golden = trace(tie_at=2)
    engine = broken(golden, 2)
    engine["layers.0.q.acc"][1, 0] += 1  # another token: its codes were equal
    assert diverges(golden, engine) == "layers.0.q.acc"
    engine = broken(golden, 2)
    engine["layers.0.attn_mix"][1] *= 2  # an earlier token: it attends to no tie
    assert diverges(golden, engine) == "layers.0.attn_mix"


def test_accumulators_must_be_equal_where_codes_are() -> None:
    golden = trace()
    engine = copy(golden)
    engine["layers.0.q.acc"][5, 7] -= 1
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is not None
    assert outcome.divergence.name == "layers.0.q.acc"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_diverges(bad: float) -> None:
    golden = trace()
    engine = copy(golden)
    engine["layers.0.attn_mix"][0, 0] = bad
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is not None
    assert "non-finite" in outcome.divergence.what


def test_a_wrong_weight_of_attention_has_a_head_a_position_and_a_key() -> None:
    golden = trace()
    engine = copy(golden)
    engine["layers.0.probs"][1, 4, 2] *= 1.5
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is not None
    assert outcome.divergence.worst == [1, 4, 2]
    assert place(outcome.divergence.name, outcome.divergence.worst) == "head 1, position 4, key 2"


def test_missing_arrays_are_counted_and_an_empty_comparison_says_so() -> None:
    golden = trace()
    engine = copy(golden)
    del engine["layers.0.q.acc"]
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.missing == ["layers.0.q.acc"]
    assert compare_traces(golden, {}, TOKENS).compared == []


def test_a_tie_cannot_be_claimed_without_the_input_of_the_quantiser() -> None:
    golden = trace(tie_at=2)
    engine = broken(golden, 2)
    del golden["layers.0.attn_norm"]
    assert compare_traces(golden, engine, TOKENS).divergence is not None


def test_a_code_so_far_off_that_the_distance_overflows_diverges() -> None:
    golden = trace()
    golden["layers.0.attn_in.codes"][2, 3] = 0
    engine = copy(golden)
    engine["layers.0.attn_in.codes"] = engine["layers.0.attn_in.codes"].astype(np.int64)
    engine["layers.0.attn_in.codes"][2, 3] = -(2**63)
    outcome = compare_traces(golden, engine, TOKENS)
    assert outcome.divergence is not None
    assert outcome.divergence.name == "layers.0.attn_in.codes"
