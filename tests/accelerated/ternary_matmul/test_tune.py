"""The tuner's choices, its file, and that the engine follows them. No time is asserted: the clock is replaced."""

import json
import os

import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

from tritgold.errors import EngineError, OutputError
from tritgold_xla import XlaEngine
from tritgold_xla.ternary_matmul import bit_linear
from tritgold_xla.ternary_matmul import tune as tuning
from tritgold_xla.ternary_matmul.choose import Choices, Measured, choose
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.tune import MadeFor, measured_here, tune

SLOW = {"select": 3.0, "bit-serial": 4.0, "int8-dot": 5.0, "float-dot": 2.0, "plain": 6.0}


@pytest.fixture
def clock(monkeypatch):
    """Seconds by formulation, to be changed by a test; each measured program really runs."""
    seconds = dict(SLOW)

    def measure(name, run):
        run()
        return seconds[name]

    monkeypatch.setattr(tuning, "seconds_of", measure)
    return seconds


@pytest.fixture
def stub(clock, monkeypatch):
    """The clock alone: nothing is compiled."""
    monkeypatch.setattr(tuning, "compiled", lambda ways, *_: [(way.name, lambda: None) for way in ways])
    return clock


def test_the_fastest_is_chosen_and_kept(clock, tmp_path, monkeypatch):
    file, said = tmp_path / "new" / "tuning.json", []
    (one,) = tune([(24, 130)], [1], file, said.append)
    assert (one.out, one.in_, one.tokens, one.formulation) == (24, 130, 1, "float-dot")
    assert one.seconds == {name: seconds / 4 for name, seconds in SLOW.items()}, "of one of the four matrices"
    assert said == ["tuning 24 x 130, 1 tokens"]
    assert measured_here(file) == (Measured(24, 130, 1, "float-dot"),)
    assert [path.name for path in file.parent.iterdir()] == ["tuning.json"]
    clock["select"] = 1.0
    monkeypatch.setattr(tuning, "compiled", lambda ways, *_: [(way.name, lambda: None) for way in ways])
    tune([(24, 130), (8, 16)], [1, 3], file)
    assert set(measured_here(file)) == {Measured(o, i, n, "select") for o, i in ((24, 130), (8, 16)) for n in (1, 3)}


def test_the_middle_of_the_rounds_decides(stub, monkeypatch, tmp_path):
    calls = []

    def measure(name, run):
        calls.append(name)
        rounds = {"select": [1.0, 9, 9, 9, 1], "bit-serial": [3.0, 3, 3, 99, 3], "float-dot": [50.0]}
        return rounds.get(name, [4.0] * 5)[calls.count(name) - 1]

    monkeypatch.setattr(tuning, "seconds_of", measure)
    (one,) = tune([(8, 16)], [2], tmp_path / "t.json")
    assert (one.formulation, one.seconds["select"], one.seconds["bit-serial"]) == ("bit-serial", 9 / 4, 3 / 4)
    assert calls.count("float-dot") == 1, "hopeless after the first round"


def test_the_plain_formulation_takes_part_only_where_it_is_quick(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_PLAIN", 8 * 16 * 2)
    two, three = tune([(8, 16)], [2, 3], tmp_path / "t.json")
    assert set(two.seconds) == set(FORMULATIONS)
    assert set(three.seconds) == set(FORMULATIONS) - {"plain"}


def test_the_clock_itself():
    assert 0 <= tuning.seconds_of("any", lambda: None) < 60


def test_a_formulation_that_is_wrong_is_an_error_and_nothing_is_kept(clock, tmp_path, monkeypatch):
    right = FORMULATIONS["int8-dot"]
    wrong = right._replace(multiply=lambda x, weight: right.multiply(x, weight).at[0, 0].add(1))
    monkeypatch.setitem(FORMULATIONS, "int8-dot", wrong)
    with pytest.raises(EngineError, match=r"int8-dot: .*4 of 64 sums differ from those of select") as refused:
        tune([(8, 16)], [2], tmp_path / "t.json")
    assert refused.value.kind == "tuning-differs"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("shapes", "tokens"), [([], [1]), ([(8, 16)], []), ([(8, 0)], [1]), ([(8, 16)], [1, 0])])
def test_sizes_that_are_none(shapes, tokens, tmp_path):
    with pytest.raises(EngineError) as refused:
        tune(shapes, tokens, tmp_path / "t.json")
    assert refused.value.kind == "tuning-size"


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_fastest", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as refused:
        tune([(8, 16)], [1], tmp_path / "file" / "t.json")
    assert refused.value.kind == "unwritable"


def test_a_write_that_fails_leaves_the_file_as_it_was(stub, tmp_path, monkeypatch):
    file = tmp_path / "t.json"
    tune([(8, 16)], [1], file)
    tune([(8, 32)], [1], tmp_path / "other.json")  # compiled now: JAX writes a file, too
    (tmp_path / "other.json").unlink()
    before = file.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr(tuning.Path, "write_bytes", fail)
    with pytest.raises(OutputError, match="No space left"):
        tune([(8, 32)], [1], file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_what_was_made_for_something_else_is_ignored_and_kept(stub, tmp_path):
    file = tmp_path / "t.json"
    tune([(8, 16)], [1], file)
    whole = json.loads(file.read_text())
    (mine,) = whole["tunings"]
    assert whole["schema"] == "tritgold.xla-tuning/1"
    differences = [{what: "another"} for what in ("jax", "jaxlib", "processor", "flags", "instructions")] + [
        {"cores": 99}
    ]
    others = [{**mine, "made_for": {**mine["made_for"], **difference}} for difference in differences]
    others[0]["choices"] = [{**mine["choices"][0], "formulation": "of a version to come"}]
    file.write_text(json.dumps({**whole, "tunings": others}))
    assert measured_here(file) == ()
    tune([(8, 32)], [1], file)
    assert json.loads(file.read_text())["tunings"][:-1] == others
    assert measured_here(file) == (Measured(8, 32, 1, "float-dot"),)


def test_choices_for_other_flags_and_threads_are_others(monkeypatch):
    here = MadeFor.here()
    assert MadeFor.here() == here
    monkeypatch.setenv("NPROC", str(here.cores + 1))
    assert MadeFor.here() != here
    monkeypatch.setenv("NPROC", str(here.cores))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    assert MadeFor.here() != here
    assert here.processor


def test_choices_for_a_processor_that_hides_what_it_can_do_are_others(monkeypatch):
    here = MadeFor.here()
    monkeypatch.setattr(tuning, "instructions", lambda: "avx avx2 fma popcnt")
    hidden = MadeFor.here()
    assert hidden.processor == here.processor
    assert hidden.instructions == "avx avx2 fma popcnt"
    monkeypatch.setattr(tuning, "instructions", lambda: "amx_int8 avx avx2 avx512_vpopcntdq fma popcnt")
    assert MadeFor.here() != hidden


@pytest.mark.parametrize("field", ["instructions", "kernels"])
def test_a_file_from_before_this_counted_is_ignored_and_kept(stub, tmp_path, monkeypatch, field):
    monkeypatch.setattr(tuning, "instructions", lambda: "avx2")
    file = tmp_path / "t.json"
    file.write_bytes(damaged(lambda f, m, c: m.pop(field)))
    assert measured_here(file) == ()
    tune([(8, 32)], [1], file)
    assert measured_here(file) == (Measured(8, 32, 1, "float-dot"),)
    assert [len(each["choices"]) for each in json.loads(file.read_text())["tunings"]] == [1, 1]


def damaged(change):
    choice = {"out": 8, "in": 16, "tokens": 1, "formulation": "select", "seconds": {"select": 1.0}}
    here = MadeFor.here()
    made_for = {name: getattr(here, name) for name in MadeFor.__struct_fields__}
    file = {"schema": "tritgold.xla-tuning/1", "tunings": [{"made_for": made_for, "choices": [choice]}]}
    change(file, made_for, choice)
    return json.dumps(file).encode()


DAMAGE = {
    "no-bytes": b"",
    "no-json": b"{]",
    "no-text": b"\xff\xfe\x00",
    "cut": damaged(lambda *_: None)[:-9],
    "not-an-object": b"[]",
    "deep": b"[" * 100_000,
    "other-schema": damaged(lambda f, m, c: f.update(schema="tritgold.xla-tuning/2")),
    "no-schema": damaged(lambda f, m, c: f.pop("schema")),
    "formulation-number": damaged(lambda f, m, c: c.update(formulation=1)),
    "size-text": damaged(lambda f, m, c: c.update(out="8")),
    "size-float": damaged(lambda f, m, c: c.update({"in": 16.5})),
    "size-true": damaged(lambda f, m, c: c.update(tokens=True)),
    "size-zero": damaged(lambda f, m, c: c.update(tokens=0)),
    "no-tokens": damaged(lambda f, m, c: c.pop("tokens")),
    "one-too-many": damaged(lambda f, m, c: c.update(note="")),
    "seconds-text": damaged(lambda f, m, c: c.update(seconds={"select": "1"})),
    "made-for-less": damaged(lambda f, m, c: m.pop("jax")),
    "instructions-number": damaged(lambda f, m, c: m.update(instructions=2)),
    "cores-text": damaged(lambda f, m, c: m.update(cores="2")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named_with_what_was_found_and_the_remedy(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_fastest", lambda *_: pytest.fail("measured"))
    file = tmp_path / "t.json"
    file.write_bytes(DAMAGE[name])
    for use in (lambda: measured_here(file), lambda: tune([(8, 16)], [1], file)):
        with pytest.raises(EngineError, match=r"t\.json: .*found .*expected .*delete it, and tune again") as refused:
            use()
        assert refused.value.kind == "tuning-file"
    assert file.read_bytes() == DAMAGE[name]


def test_the_undamaged_file_is_read(tmp_path):
    file = tmp_path / "t.json"
    file.write_bytes(damaged(lambda *_: None))
    assert measured_here(file) == (Measured(8, 16, 1, "select"),)


def test_a_formulation_of_another_version_of_tritgold_is_passed_over(tmp_path):
    file = tmp_path / "t.json"
    file.write_bytes(damaged(lambda f, m, c: f["tunings"][0]["choices"].append({**c, "formulation": "fastest"})))
    assert measured_here(file) == (Measured(8, 16, 1, "select"),)


def test_a_file_that_is_not_there_or_a_folder(tmp_path):
    for path in (tmp_path / "t.json", tmp_path):
        with pytest.raises(EngineError) as refused:
            XlaEngine(LLAMA, make_weights(LLAMA), capacity=8, tuning=path)
        assert (refused.value.kind, refused.value.file) == ("tuning-file", str(path))


def test_choices_by_matrix_and_tokens():
    choices = Choices(measured=(Measured(8, 16, 8, "plain"), Measured(8, 16, 32, "bit-serial")))
    assert [choices.of((8, 16), n) for n in (1, 8, 9, 32, 33, 512)] == ["plain"] * 2 + ["bit-serial"] * 4
    assert choices.of((16, 8), 8) == choose(8)
    assert choices._replace(everywhere="float-dot").of((8, 16), 8) == "float-dot"
    assert Choices().of((8, 16), 512) == choose(512)


class Counting(dict):
    """FORMULATIONS, with the names that were asked for while programs were made."""

    def __init__(self):
        super().__init__(FORMULATIONS)
        self.asked = []

    def __getitem__(self, name):
        self.asked.append(name)
        return super().__getitem__(name)


def test_the_engine_follows_the_file_and_gives_the_same_numbers(tmp_path, monkeypatch):
    """By matrix and number of tokens; ``formulation`` stands over it."""
    (gate, down), prompt = map(LLAMA.linear_shape, ("gate", "down")), [1, 2, 3, 4, 5]
    choices = [(gate, 1, "plain"), (gate, 8, "float-dot"), (down, 8, "bit-serial")]
    made = [{"out": out, "in": in_, "tokens": n, "formulation": name, "seconds": {}} for (out, in_), n, name in choices]
    file = tmp_path / "t.json"
    file.write_bytes(damaged(lambda f, m, c: f["tunings"][0].update(choices=made)))
    weights, known = make_weights(LLAMA), Counting()
    expected = XlaEngine(LLAMA, weights, capacity=16).trace(prompt).arrays
    monkeypatch.setattr(bit_linear, "FORMULATIONS", known)
    engine = XlaEngine(LLAMA, weights, capacity=16, tuning=file)
    found = engine.trace(prompt).arrays
    assert set(known.asked) == {choose(8), "float-dot", "bit-serial"}
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    known.asked.clear()
    engine.step(6)  # down was measured for 8 tokens alone: the next larger number counts
    assert set(known.asked) == {choose(1), "plain", "bit-serial"}
    known.asked.clear()
    codes = np.zeros((1, LLAMA.hidden), np.int8)
    engine.operation("layers.0.gate", {"codes": codes, "scale": np.ones(1, np.float32)})
    assert known.asked == ["plain"]
    one = XlaEngine(LLAMA, weights, capacity=16, tuning=file, formulation="select")
    one.operation("layers.0.gate", {"codes": codes, "scale": np.ones(1, np.float32)})
    assert known.asked == ["plain", "select"]


def test_where_the_file_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning.default_file() == tmp_path / "tritgold" / "xla-tuning.json"
    assert os.listdir(tmp_path) == []
