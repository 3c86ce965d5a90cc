"""Bugs that people have reported of ternary engines, as this suite sees them: what it must say, and what it must not.

Cases that concern the loader, the converter or the tokenizer alone are tested where those are (tests/reference).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asked_once import diagnose, judge, judge_edge_cases, judge_operations
from case_flags import all_drafts, fails, shows, with_fault
from library import Shown, golden, model, mutant

from tritgold.checkpoint import Checkpoint
from tritgold.formats.packings import packing
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.quantize import absmax_int8
from tritgold_conformance.case_vectors.answers import Answer, answer
from tritgold_conformance.case_vectors.draft import Draft, Group, trits
from tritgold_conformance.case_vectors.groups import expected
from tritgold_conformance.comparing.compare import Bound, Comparison, Exact, TieAwareCodes, Ulp, compare
from tritgold_conformance.comparing.tolerance import tolerances
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.per_run import predicted_logits
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.golden.reference_engine import ReferenceEngine

TOKENS = 12
CASES = {name: (group, draft) for group, draft, name in all_drafts()}


def case(name: str) -> tuple[Group, Draft, Answer]:
    group, draft = CASES[name]
    return group, draft, expected(group, draft)


def answered(fault: str, name: str) -> Answer:
    """What the golden model with a fault answers to a case."""
    made = with_fault("", fault)
    assert made is not None
    with np.errstate(all="ignore"):
        return answer(made, CASES[name][1])


def failing(made: Mutant, judged: Any = judge_operations) -> list[Comparison]:
    outcomes = judged(golden("seeded", TOKENS), EngineUnderTest(Shown(made, TOKENS)))
    return [c for c in outcomes if isinstance(c, Comparison) and not c.passed]


# ---- packed layouts ----------------------------------------------------------------------------------------------


def test_blocks_of_128_read_as_64_keep_every_histogram_and_fail_at_the_first_product() -> None:
    """Every ARM run of a published file: finite, ternary, and one character repeated."""
    matrix = trits(1, (1, 1024))
    wrong = packing("i2_s", block=64).unpack(packing("i2_s").pack(matrix, 0.37), matrix.shape).trits
    assert 0.2 < np.mean(wrong == matrix) < 0.6
    assert (wrong.sum(), np.count_nonzero(wrong)) == (matrix.sum(), np.count_nonzero(matrix))
    assert failing(mutant("i2s-128-as-64"))[0].name == "layers.0.q.acc"
    group, draft, right = case("files/i2_s/random-128x17")
    assert shows(group, draft, right, "i2s-128-as-64")


@pytest.mark.parametrize(("order", "found"), [("lsb", [2, 3, 7, 124]), ("msb", [0, 1, 4, 127])])
def test_where_the_non_zeros_of_one_block_come_out_tells_the_order(order: str, found: list[int]) -> None:
    """Decoded as four consecutive weights a byte: confident nonsense."""
    _, draft, right = case("files/i2_s/four-non-zeros")
    assert np.flatnonzero(right.arrays["trits"]).tolist() == [0, 1, 32, 127]
    wrong = answered(f"i2s-in-order-{order}", "files/i2_s/four-non-zeros").arrays["trits"]
    assert np.flatnonzero(wrong).tolist() == found
    assert fails(draft, right, Answer({"trits": wrong, "scale": right.arrays["scale"]}))


def test_code_3_is_refused_whichever_number_an_engine_takes_it_for() -> None:
    for fault in ("code-3-is-0", "code-3-is-plus-2"):
        assert answered(fault, "malformed/packed/i2_s-no-trit").refused == ""
        assert shows(*case("malformed/packed/i2_s-no-trit"), fault)


# ---- weight scales -----------------------------------------------------------------------------------------------


def test_a_scale_from_somewhere_else_leaves_the_sums_right_and_is_a_constant_ratio() -> None:
    """The scale of a callback came from a register: sums equal, outputs off by one number a tensor."""
    wrong = failing(mutant("scale-never"))
    assert {c.name.rpartition(".")[2] for c in wrong} == {"out"}
    assert all("a constant ratio" in c.what for c in wrong if c.name != "layers.0.ffn_act")


# ---- activations -------------------------------------------------------------------------------------------------


def test_codes_cut_off_are_no_rounding_tie() -> None:
    wrong = answered("truncated", "operations/quantize/ties").arrays["codes"]
    assert wrong.tolist() == [[127, 0, 1, 2, 0, -1, -2]]
    found = failing(mutant("truncated"))
    assert found[0].name == "layers.0.attn_in.codes"
    assert "tie" not in found[0].outcome


def test_a_token_below_the_floor_tells_the_policy() -> None:
    """13 and -25 with the floor of 1e-5; 64 and -127 with none, and with one of 1e-10, which is as good as none."""
    _, draft, right = case("operations/quantize/tiny")
    assert right.arrays["codes"].tolist() == [[13, -25]]
    assert answered("no-floor", "operations/quantize/tiny").arrays["codes"].tolist() == [[64, -127]]
    scale = np.float32(127) / np.maximum(np.abs(draft.inputs["x"]).max(axis=1), np.float32(1e-10))
    codes = np.rint(draft.inputs["x"] * scale[:, None]).astype(np.int8)
    assert codes.tolist() == [[64, -127]]
    assert fails(draft, right, Answer({"codes": codes, "scale": scale}))


def test_a_zero_token_is_zero_and_leaves_the_others_alone() -> None:
    """127 / 0 made NaN of it, and of the product."""
    _, draft, right = case("operations/linear/zero-among-others")
    assert (right.arrays["out"][1] == 0).all()
    assert np.isfinite(right.arrays["scale"]).all()
    kept = {**draft.inputs, "x": draft.inputs["x"][[0, 2]]}
    alone = answer(Mutant(model("seeded")), replace(draft, inputs=kept)).arrays
    assert np.array_equal(right.arrays["out"][[0, 2]], alone["out"])


# ---- sums --------------------------------------------------------------------------------------------------------


def test_an_int16_sum_shows_from_259_products_of_one_sign_on_and_never_on_random_ones() -> None:
    assert answered("int16-wraps", "operations/bit-linear/same-sign-4096").arrays["acc"][0, 0] == -4096
    shown = [name for name in CASES if "/bit-linear/" in name and shows(*case(name), "int16-wraps")]
    assert "operations/bit-linear/same-sign-259" in shown
    assert not [name for name in shown if "random" in name or name.endswith("same-sign-128")]
    for judged in (judge_operations, judge_edge_cases):  # rows of at most 256 cannot show it, and nothing says they did
        assert not failing(mutant("int16-wraps"), judged)
    run, faults = golden("seeded", TOKENS), [FAULTS["int16-wraps"], FAULTS["silu"]]
    found = diagnose(run, EngineUnderTest(Shown(mutant("int16-wraps"), TOKENS)), "seeded", faults=faults)
    assert found.clean
    assert found.could_not_see == ["int16-wraps"]


def lanes_of_int16(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Codes times 0, 1 or 2 in 32 lanes that wrap, then the sum of the codes taken away."""
    products = codes.astype(np.int64)[:, None] * (trits.astype(np.int64) + 1)[None]
    lanes = products.reshape(*products.shape[:2], -1, 32).sum(axis=2).astype(np.int16)
    return (lanes.astype(np.int64).sum(axis=2) - codes.astype(np.int64).sum(axis=1, keepdims=True)).astype(np.int32)


def test_lanes_that_hold_4096_products_wrap_at_the_width_of_real_models_and_are_told_as_such() -> None:
    for width, found in ((4096, "equal"), (6912, "fails")):
        _, draft, right = case(f"operations/bit-linear/same-sign-{width}")
        sums = lanes_of_int16(draft.inputs["codes"], draft.inputs["trits"])
        judged = compare("acc", right.arrays["acc"], sums, Exact())
        assert judged.outcome == found
    assert (sums[0, 0], right.arrays["acc"][0, 0]) == (-1219328, 877824)
    assert "multiples of 65,536: sums wrapped in int16" in judged.what


def test_an_offset_from_the_sum_of_the_floats_leaves_something_of_zero_weights() -> None:
    """x = 127 and four of 0.4, weights 0: 127 less 128.6."""
    _, draft, right = case("operations/linear/offset")
    assert not right.arrays["out"].any()
    wrong = answered("offset-from-float-sum", "operations/linear/offset").arrays
    assert wrong["acc"][0].tolist() == pytest.approx([-1.6, -1.6], abs=1e-5)
    assert fails(draft, right, Answer(wrong))


def test_a_tail_behind_whole_blocks_is_missed_at_sizes_off_the_grid_alone() -> None:
    """18 products of 1 are 18 and not 16."""
    assert answered("tail-of-16-dropped", "operations/bit-linear/tail-of-18").arrays["acc"].tolist() == [[16]]
    for block in (16, 32, 128):
        shown = {
            name for name in CASES if "/bit-linear/same-sign" in name and shows(*case(name), f"tail-of-{block}-dropped")
        }
        assert shown == {"operations/bit-linear/same-sign-259"}


def test_a_kernel_that_fails_for_some_numbers_of_tokens_fails_by_that_rule() -> None:
    """Right at one size and wrong at another: more than 32 tokens, or a rest after fours."""

    def of_tokens(fault: str) -> set[int]:
        names = [name for name in CASES if "/bit-linear/tokens-" in name]
        return {int(name.rpartition("-")[2]) for name in names if shows(*case(name), fault)}

    assert of_tokens("rows-from-32-on-zero") == {33, 64}
    assert of_tokens("tail-rows-zero") == {5, 15, 17, 18, 31, 33}


# ---- kernels that do nothing -------------------------------------------------------------------------------------


class Unwritten(ReferenceEngine):
    """Kernels compiled to empty bodies: whatever was in memory, here one value."""

    value = np.float32(0)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return np.full((len(tokens), self._config.vocab), self.value, np.float32)

    def step(self, token: int) -> np.ndarray:
        return self.prefill([token])[0]

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {role: self._spoilt(x) for role, x in super().operation(name, inputs).items()}

    def trace(self, tokens: list[int]) -> Any:
        return {name: self._spoilt(a) for name, a in super().trace(tokens).arrays.items()}

    def _spoilt(self, array: np.ndarray) -> np.ndarray:
        value = self.value if array.dtype.kind == "f" else 0
        return np.full(array.shape, value, array.dtype)


def test_outputs_that_were_never_written_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token for ever: the first of the vocabulary, "!"."""
    run = golden("seeded", TOKENS)
    found = judge(run, EngineUnderTest(Unwritten(model("seeded"), TOKENS)), "seeded", with_speed=False)
    assert found.exit_code == 1
    given = {"operations", "edge_cases", "trace", "logits", "continued", "steps"}
    assert {name for name, level in found.levels.items() if level.status == "failed"} == given
    assert {level.status for name, level in found.levels.items() if name not in given} == {"not assessed"}
    assert any("degenerate" in verdict.problem for verdict in found.logits)
    monkeypatch.setattr(Unwritten, "value", np.float32(np.nan))
    found = judge(run, EngineUnderTest(Unwritten(model("seeded"), TOKENS)), "seeded", with_speed=False)
    assert found.exit_code == 1


# ---- the graph ---------------------------------------------------------------------------------------------------


def test_silu_in_the_place_of_squared_relu_diverges_at_the_gate_with_attention_equal() -> None:
    """Fluent, the same on every backend, and five times the perplexity."""
    found = failing(mutant("silu"))
    assert found[0].name == "layers.0.ffn_act"
    assert {c.name.rpartition(".")[2] for c in found} == {"ffn_act"}
    wrong = answered("silu", "operations/ffn-activation/relu2-by-hand").arrays["x"]
    assert wrong.tolist()[0] == pytest.approx([-0.2689, 0.3112, 1.7616], abs=1e-4)


def test_a_gate_of_300_is_90000_and_infinite_in_float16() -> None:
    group, draft, right = case("operations/ffn-activation/relu2-signs-and-300")
    assert right.arrays["x"].max() == 90_000
    wrong = answered("ffn-act-overflows-f16", "operations/ffn-activation/relu2-signs-and-300").arrays["x"]
    assert np.isinf(wrong).any()
    assert shows(group, draft, right, "ffn-act-overflows-f16")
    assert "non-finite" in failing(mutant("ffn-act-overflows-f16"), judge_edge_cases)[0].what


# ---- rotation, rows, positions -----------------------------------------------------------------------------------


def test_pairs_of_neighbours_are_right_at_position_0_and_wrong_from_1_on() -> None:
    wrong = answered("rope-interleaved", "operations/rope/by-hand").arrays["x"]
    assert wrong.ravel().tolist() == pytest.approx([0.5403, 0.8415, 0, 0], abs=1e-4)
    assert not shows(*case("operations/rope/position-0"), "rope-interleaved")
    first = failing(mutant("rope-interleaved"))[0]
    assert first.name == "layers.0.q_rope"
    assert first.worst[0] > 0


def test_rows_of_q_and_k_in_the_other_order_are_permuted_channels() -> None:
    """The same model right from one container and wrong from the other."""
    first = failing(mutant("qk-rows-permuted"))[0]
    assert (first.name, "permuted" in first.what) == ("layers.0.q.acc", True)


def test_a_cache_of_16_slots_is_right_for_16_positions_and_then_repeats() -> None:
    """Writes past the buffer: text turned to repetition after a certain length."""
    run = golden("seeded", 20)
    ours = predicted_logits(mutant("kv-ring-of-16"), run.tokens, "steps")
    assert ours is not None
    off = np.abs(ours - run.logits).max(axis=1) > 1e-3
    assert not off[:16].any()
    assert off[17:].all()


def test_cases_are_at_positions_0_1_and_the_last() -> None:
    """A slice at position 0 alone sees neither rotation, nor mask, nor softmax scale."""
    for fault in ("rope-missing", "mask-missing", "softmax-scale-missing"):
        assert not shows(*case("operations/softmax/position-0"), fault)
    seen = {int(p) for name in CASES if "/rope/" in name for p in CASES[name][1].inputs["positions"]}
    assert seen >= {0, 1, 4095}


# ---- vocabulary, text --------------------------------------------------------------------------------------------


def test_ids_that_pad_the_vocabulary_win_where_all_logits_are_negative() -> None:
    """Zero-padded rows of the head give logits of 0."""
    shown = [name for name in CASES if name.startswith("decode/generate") and shows(*case(name), "padded-ids-chosen")]
    assert shown
    for name in shown:
        vocab = 259
        made = with_fault("decode", "padded-ids-chosen")
        assert made is not None
        assert max(answer(made, CASES[name][1]).arrays["ids"]) >= vocab > max(case(name)[2].arrays["ids"])


def test_a_second_bos_is_seen_in_the_ids_before_any_logits() -> None:
    shown = [name for name in CASES if name.startswith("tokenizer/") and shows(*case(name), "bos-doubled")]
    assert "tokenizer/chat-6" in shown
    for name in shown:
        right = case(name)[2].arrays["ids"]
        wrong = answered("bos-doubled", name).arrays["ids"]
        assert wrong.tolist() == [right[0], *right]


def test_an_emoji_of_several_tokens_comes_out_whole_or_not_at_all() -> None:
    right = case("tokenizer/stream-7")[2].texts
    wrong = answered("tokens-decoded-alone", "tokenizer/stream-7").texts
    assert right is not None
    assert wrong is not None
    assert "".join(right) == "a 😸 é"
    assert "\ufffd" in "".join(wrong)


# ---- the judge itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["f32", "f16", "bf16", "untied"])
def test_the_body_is_held_exactly_and_the_head_by_a_bound_of_its_own_weights(head: str) -> None:
    """A head of another type than the body is not a reason to hold either to the other's threshold."""
    checkpoint = _with_head(model("seeded"), head)
    run = golden("seeded", TOKENS)
    for operation, inputs in replace(run, checkpoint=checkpoint).operations():
        allowed = tolerances(operation, inputs, checkpoint.config, checkpoint.weights)
        if operation.kind == "bit_linear":
            assert isinstance(allowed["acc"], Exact)
            assert isinstance(allowed["out"], Ulp)
        if operation.kind == "quantize":
            assert isinstance(allowed["codes"], TieAwareCodes)
        if operation.kind == "lm_head":
            size = np.abs(checkpoint.weights.head_or_embedding.rows(slice(None)))
            magnitude = np.abs(inputs["x"]).astype(np.float64) @ size.T.astype(np.float64)
            assert isinstance(allowed["x"], Bound)
            ratio = allowed["x"].limit / magnitude
            assert np.allclose(ratio, ratio[0, 0], rtol=1e-5)


def _with_head(checkpoint: Checkpoint, head: str) -> Checkpoint:
    from tritgold.rounding import bf16_to_f32, f32_to_bf16
    from tritgold_conformance.faults.witnesses import Rows

    rows = checkpoint.weights.embedding.rows(slice(None)).copy() * np.float32(1.0001)
    rounded = {
        "f32": rows,
        "f16": rows.astype(np.float16).astype(np.float32),
        "bf16": bf16_to_f32(f32_to_bf16(rows)),
        "untied": rows[::-1].copy(),
    }[head]
    weights = replace(checkpoint.weights, head=Rows(rounded))
    return replace(checkpoint, weights=weights, config=replace(checkpoint.config, tied_head=False))


def test_sums_are_those_of_python_integers_up_to_the_longest_row() -> None:
    """A reference sum was itself wrong in a project that judged by it."""
    for width in (259, 4096, 132_104):
        codes, ones = np.full((1, width), 127, np.int8), np.ones((1, width), np.int8)
        assert GOLDEN_ARITHMETIC.accumulate(codes, ones).tolist() == [[127 * width]]
        assert GOLDEN_ARITHMETIC.accumulate(codes, -ones).tolist() == [[-127 * width]]


def test_quantising_leaves_its_argument_alone_and_so_does_packing() -> None:
    """A packer that adds 1 in place to what it was given packs something else the second time."""
    x, matrix = np.array([[127, 0.5, -3]], np.float32), trits(3, (4, 128))
    kept = x.copy(), matrix.copy()
    assert all(np.array_equal(a, b) for a, b in zip(absmax_int8(x), absmax_int8(x), strict=True))
    assert packing("hf").pack(matrix) == packing("hf").pack(matrix)
    assert np.array_equal(x, kept[0])
    assert np.array_equal(matrix, kept[1])
