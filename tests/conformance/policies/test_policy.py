"""Policies: their names, what they round, and how they are said."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from library import golden as golden_run
from library import model
from tritgold_command import call, parsed

from tritgold.errors import EngineError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Q8_K_ARITHMETIC
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.comparing.logits import judge_rows
from tritgold_conformance.comparing.tie_sensitivity import moved_otherwise
from tritgold_conformance.golden.run import GoldenRun, named_mode
from tritgold_conformance.policies import FLOAT32, PARTS, named_policy
from tritgold_conformance.policies.attention import with_flash, without_flash
from tritgold_conformance.policies.heads import half_steps
from tritgold_conformance.policies.roundings import Noise, bf16, f16, stored

TOKENS = [3, 1, 4, 1, 5, 9]


def run(policy: str) -> GoldenRun:
    return GoldenRun.of(model("seeded"), TOKENS, policy=named_policy(policy))


@pytest.mark.parametrize(
    ("name", "says"), [("kv-f17", "unknown policy"), ("kv-f16+kv-int8", "two policies"), ("", "unknown")]
)
def test_a_name_that_is_no_policy_is_refused(name: str, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        named_policy(name)


@pytest.mark.parametrize("name", PARTS)
def test_the_mode_of_a_run_names_the_policy(name: str) -> None:
    arithmetic, policy = named_mode(f"golden.{name}/1")
    assert (arithmetic, policy) == (GOLDEN_ARITHMETIC, named_policy(name))
    assert named_mode("llama-cpp-q8_k/1") == (Q8_K_ARITHMETIC, FLOAT32)
    made = replace(golden_run("seeded", 4), policy=policy)
    assert made.mode == f"golden.{name}/1"


def test_float32_is_the_golden_arithmetic_itself() -> None:
    assert FLOAT32.golden(GOLDEN_ARITHMETIC) is GOLDEN_ARITHMETIC
    assert run("float32").mode == "golden/1"
    policy = named_policy("kv-f16")
    assert policy.golden(GOLDEN_ARITHMETIC) is policy.golden(GOLDEN_ARITHMETIC)


def test_every_output_is_rounded_in_bfloat16() -> None:
    arrays = run("bf16").trace.arrays
    floats = {n: a for n, a in arrays.items() if a.dtype == np.float32 and not n.endswith("scale")}
    assert all(np.array_equal(a, a.astype(ml_dtypes.bfloat16).astype(np.float32)) for a in floats.values())
    assert len(floats) > 20


def test_a_cache_changes_what_attention_reads_and_nothing_before() -> None:
    plain, made = run("float32").trace, run("kv-int8").trace
    assert np.array_equal(plain["layers.0.k_rope"], made["layers.0.k_rope"])
    assert not np.array_equal(plain["layers.0.probs"], made["layers.0.probs"])


def test_roundings_are_those_of_the_types() -> None:
    x = np.random.default_rng(1).normal(size=(2, 2, 32)).astype(np.float32) * 100
    assert np.array_equal(bf16(x), x.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert np.array_equal(f16(x), x.astype(np.float16).astype(np.float32))
    assert f16(np.array([1e6], np.float32)).tolist() == [1e6], "what float16 cannot hold is kept elsewhere"
    assert np.array_equal(stored("f16", "k")(x), f16(x))
    assert np.abs(stored("q8_0", "v")(x) - x).max() < np.abs(x).max() / 127


def test_flash_attention_adds_up_in_float16_key_by_key() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=(5, heads, 8)).astype(np.float32) for heads in (4, 2, 2))
    made = with_flash(GOLDEN_ARITHMETIC)
    p = made.softmax_weights(q, k, 0)
    sums, total = np.zeros(8, np.float32), 0.0
    for key in range(5):  # the last token, head 3, without rescaling: its scores are what p says
        weight = float(p[3, 4, key]) / float(p[3, 4].max())
        total += weight
        sums = f16(sums + f16(v[key, 1]) * np.float32(weight))
    mixed = made.mix_values(p, v).reshape(5, 4, 8)[4, 3]
    assert np.abs(mixed - sums / total).max() < 5e-3
    assert not np.array_equal(made.mix_values(p, v), GOLDEN_ARITHMETIC.mix_values(p, v))
    below = p.copy()
    below[:, 1:, 0] = -1e-9
    assert np.isfinite(made.mix_values(below, v)).all(), "noise may carry a weight below 0"
    rounded = without_flash(GOLDEN_ARITHMETIC)
    assert np.array_equal(rounded.mix_values(p, v), GOLDEN_ARITHMETIC.mix_values(f16(p), f16(v)))


def test_a_perturbed_run_is_another_one_and_always_the_same() -> None:
    made, c = run("kv-f16"), model("seeded")
    first, again, other = (
        forward(TOKENS, c.weights, c.config, arithmetic=moved_otherwise(made, number)) for number in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.abs(first - made.logits).max() < 0.5 * np.abs(made.logits).max()


@pytest.mark.parametrize(("policy", "lowest"), [("bf16", -128), ("f16", -127), ("kv-f16", -127)])
def test_the_largest_code_is_moved_as_far_as_the_policy_rounds(policy: str, lowest: int) -> None:
    """x * s is rounded as well: -127 by bfloat16, whose spacing is 1 there, may be -128, and by float16 never."""
    c, made = model("seeded"), run(policy)
    found = []
    for number in range(6):
        trace = Trace()
        forward(TOKENS, c.weights, c.config, trace=trace, arithmetic=moved_otherwise(made, number))
        found += [int(array.min()) for name, array in trace.arrays.items() if name.endswith("codes")]
    assert min(found) == lowest


def test_a_policy_is_allowed_for_after_a_failure() -> None:
    """Roundings of a policy are not searched for, so that a failure elsewhere is no reason to forget them."""
    made = run("bf16")
    moved = forward(TOKENS, (c := model("seeded")).weights, c.config, arithmetic=moved_otherwise(made, 3))
    assert not judge_rows(made, moved, trials=0).failing.any()
    assert judge_rows(made, -moved, trials=0).failing.all()


def test_noise_is_even_and_within_one() -> None:
    found = Noise(3)((40, 50))
    assert abs(float(found.mean())) < 0.05
    assert float(np.abs(found).max()) <= 1
    assert half_steps(np.array([[31.0, 1.0, 2.0]]), 2, 31).tolist() == [[0.5, 0.5, 2 / 62]]


def test_an_unknown_policy_is_exit_code_3() -> None:
    result = call("check", "--engine", "reference", "--policy", "kv-f17", "--one-text", "--tokens", 2, "--json")
    assert (result.exit_code, parsed(result)["kind"]) == (3, "engine-policy")


def test_the_verdict_names_the_policy() -> None:
    words = ("check", "--engine", "reference", "--policy", "logits-bf16", "--one-text", "--tokens", 2, "--no-speed")
    result = call(*words)
    assert result.exit_code == 0
    assert "by policy logits-bf16" in result.output
    assert parsed(call(*words, "--json"))["mode"] == "golden.logits-bf16/1"
