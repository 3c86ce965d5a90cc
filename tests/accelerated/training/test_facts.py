"""training.json: names that were there stay, and the curve covers every step of a run of any length."""

import json
from dataclasses import replace

import numpy as np
import pytest
from refusals import refusal
from tiny_training import TINY

from tritgold_xla.training.facts import CURVE_EVERY, FILE, corpus_facts, record, run_facts
from tritgold_xla.training.run_state import Run
from tritgold_xla.training.tokens import Stream


def run(steps):
    losses = tuple(float(step * step) for step in range(steps))
    return Run(TINY, {}, (), step=steps, losses=losses, held_out=((2, 1.23456), (steps, 1.0)), seconds=12.6)


def test_recording_keeps_the_other_names(tmp_path):
    record(tmp_path, "one", {"a": 1})
    record(tmp_path, "two", {"b": [2, 3]})
    record(tmp_path, "one", {"c": "Æ"})
    assert json.loads((tmp_path / FILE).read_text(encoding="utf-8")) == {"one": {"c": "Æ"}, "two": {"b": [2, 3]}}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_record_that_cannot_be_written_leaves_the_file(tmp_path):
    record(tmp_path, "one", {"a": 1})
    with pytest.raises(TypeError):
        record(tmp_path, "two", {"b": object()})
    assert json.loads((tmp_path / FILE).read_text(encoding="utf-8")) == {"one": {"a": 1}}


@pytest.mark.parametrize(("steps", "ends"), [(7, [7]), (25, [25]), (30, [25, 30]), (50, [25, 50]), (63, [25, 50, 63])])
def test_the_curve_ends_with_the_last_step(steps, ends):
    made = run(steps)
    curve = run_facts(made)["curve"]
    assert [end for end, _ in curve] == ends
    for end, loss in curve:
        # Always of as many steps, where there are as many: the last point is as steady as the others.
        assert loss == pytest.approx(np.mean(made.losses[max(end - CURVE_EVERY, 0) : end]), abs=1e-4)


def test_a_run_is_described_by_what_was_measured():
    facts = run_facts(run(8))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["recipe"] == TINY.as_dict()
    assert facts["held_out_bits_per_byte"] == [[2, 1.2346], [8, 1.0]]
    assert facts["seconds"] == 13
    assert set(facts["versions"]) == {"python", "jax", "jaxlib", "numpy", "optax", "tokenizers"}
    assert facts["versions"]["numpy"] == np.__version__
    assert "cores" in facts["machine"]
    assert run_facts(replace(run(8), seconds=99.0))["seconds"] == 99


def test_the_two_parts_of_the_corpus_are_not_swapped():
    facts = corpus_facts(Stream(np.zeros(5), 50), Stream(np.zeros(3), 30), 2.34567)
    assert facts["train"] == {"tokens": 5, "bytes": 50}
    assert facts["held-out"] == {"tokens": 3, "bytes": 30}
    assert facts["five_gram_bits_per_byte"] == 2.3457


def test_a_damaged_record_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / FILE
    path.write_text("{")
    error = refusal(lambda: record(tmp_path, "a", {}))
    assert (error.kind, error.file) == ("training-facts", str(path))
    assert path.read_text() == "{"
