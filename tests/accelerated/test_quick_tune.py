"""The choices of a first start: what wins every round, within a budget. The clock is replaced."""

import dataclasses

import numpy as np
import pytest
from engine_cases import LLAMA, Matrix, make_weights

from tritgold.errors import EngineError, TritgoldWarning
from tritgold_xla import XlaEngine
from tritgold_xla import quick_tune as quick
from tritgold_xla.layers.lm_head import SIDES
from tritgold_xla.runtime.chunks import CHUNKS
from tritgold_xla.ternary_matmul import tune as tuning
from tritgold_xla.ternary_matmul.choose import HEAD_SIDES, Choices, Measured, choose, choose_head, library_dots
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.tune import measured_here

SHAPES = [(24, 130), (8, 16)]


@pytest.fixture
def seconds(monkeypatch):
    """Seconds by formulation, a list of rounds or a number; nothing is compiled, and the time of day stands still."""
    taken, now = {}, [0.0]

    def seconds_of(name, _):
        said = taken.get(name, 5.0)
        return said.pop(0) if isinstance(said, list) else said

    monkeypatch.setattr(tuning, "compiled", lambda ways, *_: [(way.name, lambda: None) for way in ways])
    monkeypatch.setattr(tuning, "seconds_of", seconds_of)
    monkeypatch.setattr(quick, "library_dots", lambda: True)
    monkeypatch.setattr(quick.time, "perf_counter", lambda: now[0])
    taken["now"] = now
    return taken


def test_what_wins_every_round_is_taken_and_kept(seconds, tmp_path):
    file = tmp_path / "new" / "t.json"
    seconds |= {"bit-serial": 1.0, "int8-dot": 4.0}
    found = [one for one in quick.quick_tune(SHAPES, file) if one.seconds]
    chosen = {(one.out, one.in_, one.tokens): one.formulation for one in found}
    expected = {8: "int8-dot", 1: "bit-serial", 32: "int8-dot"}
    assert chosen == {(*shape, tokens): name for shape in SHAPES for tokens, name in expected.items()}
    kept = {(one.out, one.in_, one.tokens): one.formulation for one in measured_here(file)}
    assert kept == chosen | {(*shape, 128): choose(128) for shape in SHAPES}
    assert found[1].seconds == {"select": 5 / 4, "bit-serial": 1 / 4}, "of one of the four matrices"


def test_the_head_is_the_operand_that_was_faster(seconds, tmp_path):
    file = tmp_path / "t.json"

    def sides(*tokens):
        choices = Choices(measured=measured_here(file))
        return [choices.head_side((40, 24), count) for count in tokens]

    seconds |= {"head-right": 1.0, "head-left": 2.0}
    found = quick.quick_tune_head((40, 24), file)
    assert {one.tokens: one.formulation for one in found if one.seconds} == {8: "head-right", 32: "head-right"}
    assert sides(1, 2, 16, 17, 128) == [choose_head(1), "head-right", "head-right", "head-right", choose_head(128)]
    assert Choices(measured=measured_here(file)).of((40, 24), 8) == choose(8), "no way to multiply a ternary matrix"
    seconds |= {"head-right": 1.0, "head-left": [2.0] * 7 + [0.5]}
    quick.quick_tune_head((40, 24), file)
    assert sides(8, 32) == ["head-right", choose_head(32)]


def test_a_head_that_follows_the_rule_does_so_for_any_number_of_tokens(seconds, tmp_path):
    quick.quick_tune_head((40, 24), tmp_path / "t.json")
    choices = Choices(measured=measured_here(tmp_path / "t.json"))
    assert [choices.head_side((40, 24), n) for n in range(1, 200)] == [choose_head(n) for n in range(1, 200)]
    assert choices.told() == "as the rule"


def test_an_operand_that_gives_other_bits_is_said_and_not_taken(seconds, tmp_path, monkeypatch):
    seconds |= {"head-right": 1.0, "head-left": 2.0}
    wrong = {"head-left": lambda x, rows: x[:, :1], "head-right": lambda x, rows: x[:, :1] * (1 + 2**-23)}
    monkeypatch.setattr(quick.lm_head, "SIDES", wrong)
    with pytest.warns(TritgoldWarning, match="different bits here"):
        few, *_ = quick.quick_tune_head((40, 24), tmp_path / "t.json")
    assert (few.tokens, few.formulation, few.seconds) == (8, choose_head(8), {})


def test_a_matrix_of_the_head_s_size_is_chosen_for_itself(seconds, tmp_path):
    seconds |= {"bit-serial": 1.0, "head-right": 1.0, "head-left": 2.0}
    quick.quick_tune([(40, 24)], tmp_path / "t.json")
    quick.quick_tune_head((40, 24), tmp_path / "t.json")
    quick.quick_tune([(40, 24)], tmp_path / "t.json")
    choices = Choices(measured=measured_here(tmp_path / "t.json"))
    assert (choices.of((40, 24), 1), choices.head_side((40, 24), 8)) == ("bit-serial", "head-right")


@pytest.mark.parametrize(
    ("head", "tuning", "formulation"), [(None, "auto", None), ((9, 9), None, None), ((9, 9), "auto", "plain")]
)
def test_a_head_that_is_not_chosen_is_not_measured(monkeypatch, head, tuning, formulation):
    monkeypatch.setattr(quick, "library_dots", lambda: True)
    monkeypatch.setattr(quick, "quick_tune_head", lambda *_: pytest.fail("measured"))
    assert quick.with_head(Choices(formulation), head, tuning) == Choices(formulation)


def test_what_loses_one_round_does_not_stand_over_the_rule(seconds, tmp_path):
    seconds["int8-dot"] = [1.0, 1.0, 9.0, 1.0]
    one, *_ = quick.quick_tune([(8, 16)], tmp_path / "t.json", seconds=-1)
    assert (one.formulation, one.tokens) == (choose(8), 8)


def test_it_stops_when_its_time_is_over(seconds, tmp_path, monkeypatch):
    now = seconds["now"]

    def compiled(ways, *_):
        now[0] += 0.8
        return [(way.name, None) for way in ways]

    monkeypatch.setattr(tuning, "compiled", compiled)
    found = quick.quick_tune(SHAPES, tmp_path / "t.json")
    measured = [(one.out, one.in_, one.tokens) for one in found if one.seconds]
    assert measured == [(24, 130, 8), (24, 130, 1), (24, 130, 32)]


def test_what_is_not_measured_follows_the_nearest_else_the_rule(seconds, tmp_path, monkeypatch):
    counted = {(24, 130): {1: ("bit-serial",), 8: ("int8-dot",)}, (8, 16): {1: ("plain",)}, (8, 20): {}}
    tasks = [(shape, tokens, ways) for shape, by in counted.items() for tokens, ways in by.items()]
    monkeypatch.setattr(quick, "_tasks", lambda _: iter(tasks))
    seconds |= {"bit-serial": 1.0, "int8-dot": 1.0, "plain": 1.0}
    file = tmp_path / "t.json"
    found = quick.quick_tune(list(counted), file)
    assert [(one.out, one.in_, one.tokens) for one in found if one.seconds] == [task[0] + task[1:2] for task in tasks]
    choices = Choices(measured=measured_here(file))
    assert choices.of((8, 20), 1) == "plain"
    assert choices.of((8, 16), 5) == "int8-dot"
    ways = [choices.of((24, 130), tokens) for tokens in (1, 8, 32, 128)]
    assert ways == ["bit-serial", "int8-dot", choose(32), choose(128)]


def test_the_largest_matrix_of_a_layer_is_first():
    assert quick.shapes_of(LLAMA)[0] == LLAMA.linear_shape("gate")
    assert set(quick.shapes_of(LLAMA)) == {
        LLAMA.linear_shape(name) for name in ("q", "k", "v", "o", "gate", "up", "down")
    }


def test_auto_measures_once(seconds, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seconds["bit-serial"] = 1.0
    first = quick.measured_for(LLAMA, "auto")
    assert Measured(*LLAMA.linear_shape("gate"), 1, "bit-serial") in first
    head = (LLAMA.vocab, LLAMA.hidden)
    both = quick.with_head(Choices(measured=first), head, "auto")
    assert both.measured == first + tuple(one for one in measured_here(tuning.default_file()) if one not in first)
    assert Measured(*head, 8, "head-left") in both.measured
    monkeypatch.setattr(quick, "quick_tune_head", lambda *_: pytest.fail("measured again"))
    assert quick.with_head(both, head, "auto") == both
    monkeypatch.setattr(quick, "quick_tune", lambda *_: pytest.fail("measured again"))
    assert quick.measured_for(LLAMA, "auto") == both.measured
    assert quick.measured_for(LLAMA, None) == ()
    assert quick.choices_for(LLAMA, "plain", "auto") == Choices("plain")


def test_a_cache_folder_that_cannot_be_written_is_said_and_nothing_is_measured(seconds, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(TritgoldWarning, match=r"not measured: .*\[unwritable\]"):
        assert quick.measured_for(LLAMA, "auto") == ()


def test_a_way_that_is_wrong_is_an_error(tmp_path, monkeypatch):
    right = FORMULATIONS["bit-serial"]
    wrong = right._replace(multiply=lambda x, weight: right.multiply(x, weight).at[0, 0].add(1))
    monkeypatch.setitem(FORMULATIONS, "bit-serial", wrong)
    for ways in ("_WITH_LIBRARY", "_WITHOUT"):
        monkeypatch.setattr(quick, ways, {1: ("select", "bit-serial")})
    with pytest.raises(EngineError, match="bit-serial") as refused:
        quick.quick_tune([(8, 16)], tmp_path / "t.json", seconds=-1)
    assert refused.value.kind == "tuning-differs"


def test_the_random_planes_are_those_of_trits():
    """Also in the columns that fill the last words: every way gives the same integers."""
    codes, weight = quick._problem(24, 130, 3)
    one = weight._replace(bits=weight.bits[0], negatives=weight.negatives[0])
    sums = {name: np.asarray(way.accumulate(codes[0], one)) for name, way in FORMULATIONS.items()}
    assert np.abs(sums["plain"]).max() > 0
    for name, found in sums.items():
        np.testing.assert_array_equal(found, sums["plain"], err_msg=name)


def test_the_engine_says_what_it_was_given(seconds, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights, prompt = make_weights(LLAMA), [1, 2, 3, 4, 5]
    seconds["int8-dot"] = 1.0
    engine, plain = (XlaEngine(LLAMA, weights, 16, tuning=how) for how in ("auto", None))
    assert "8 int8-dot" in engine.versions()["tuned"]
    assert "tuned" not in plain.versions()
    np.testing.assert_array_equal(engine.prefill(prompt), plain.prefill(prompt))


@pytest.mark.parametrize("side", HEAD_SIDES)
def test_logits_have_the_same_bits_with_the_head_on_either_side(side, tmp_path, monkeypatch):
    """Of a prompt, a step and a batch: the whole engine, from a file as the tuner writes it."""
    weights, prompt, taken = make_weights(LLAMA), list(range(1, 20)), set()
    bits = weights.head.array.view(np.uint32) & np.uint32(0xFFFF0000)
    weights = dataclasses.replace(weights, head=Matrix(bits.view(np.float32)))
    file = tmp_path / "t.json"
    tuning.keep(file, [tuning.Choice(LLAMA.vocab, LLAMA.hidden, tokens, side, {}) for tokens in CHUNKS])

    def logits(how):
        engine = XlaEngine(LLAMA, weights, 64, sequences=12, tuning=how)
        return [engine.prefill(prompt), engine.step(3), engine.step_all([5] * 12)]

    wanted = logits(None)
    sides = {name: lambda x, head, name=name: taken.add(name) or SIDES[name](x, head) for name in HEAD_SIDES}
    monkeypatch.setattr(quick.lm_head, "SIDES", sides)
    for found, right in zip(logits(file), wanted, strict=True):
        np.testing.assert_array_equal(found, right)
    assert taken == ({side} if library_dots() else set())
