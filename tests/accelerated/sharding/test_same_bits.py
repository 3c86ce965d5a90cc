"""The same hash of logits, traces and tokens for any number of devices: a process of its own has enough of them."""

import json
from pathlib import Path

import pytest
from measure import sharding_bits
from measure.journal import Journal
from measure.sharding_bits import cases, differing, hashes

from tritgold_xla.kv_cache.kv_scheme import SCHEMES
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS

RECORDED = Path(__file__).parents[3] / "docs/data/sharding-bits.json"


def test_a_small_model_on_two_and_three_devices():
    # Three heads on two devices: one has padding. Scales that multiply, sub-norms, a head that is not cut.
    found = hashes(["mixed"], [["int8", "plain"]], [1, 2, 3], "some")
    by_devices = found["mixed"]["int8, plain"]
    # Four of a layer, which the text of a program has once; none for embedding and head, which are float32 here.
    # A GPU's program is lowered, which needs no GPU, and not compiled.
    for lowered in ("collectives", "for CUDA"):
        assert {n: answers.pop(lowered) for n, answers in by_devices.items()} == {"1": "0", "2": "4", "3": "4"}
    assert differing(found) == []


def test_a_long_text_in_a_bfloat16_cache_whose_parts_are_multiplied_as_they_are_stored():
    found = hashes(["long"], [["bf16", None]], [1, 2, 3], "long")
    assert differing(found) == []
    assert found["long"]["bf16, None"].keys() == {"1", "2", "3"}


@pytest.mark.sharding
def test_processes_agree_whether_the_head_is_cut():
    way = [["one-wide-row"], [["f32", "plain"]]]
    alone, shared = hashes(*way, [1], "steps"), hashes(*way, [2], "steps", processes=2)
    assert shared["one-wide-row"]["f32, plain"]["2"] == alone["one-wide-row"]["f32, plain"]["1"]


def test_a_difference_is_seen():
    same = {"trace": "a", "logits": "b"}
    found = {"m": {"w": {"1": same, "2": same | {"logits": "c"}}}}
    assert differing(found) == [("m", "w", "2", "logits")]


def test_a_program_that_fails_is_no_answer():
    with pytest.raises(RuntimeError, match="no such model"):
        hashes(["no such model"], [["f32", None]], [1], "steps")


@pytest.mark.parametrize("model", sharding_bits.MODELS)
def test_the_long_run_has_every_scheme_and_formulation_of_every_model(model):
    found = [case for case in cases() if case.model == model]
    assert {case.way[0] for case in found} == set(SCHEMES)
    assert {case.way[1] for case in found} == {None, *FORMULATIONS}
    assert {case.devices for case in found} == {(1, 2, 3, 4, 8)}
    assert (2, 4) in {case.processes for case in found}


def test_a_row_names_what_differs(monkeypatch):
    def answered(models, ways, devices, extent, processes=1):
        digest = "b" if processes == 4 else "a"
        return {"m": {"f32, None": {str(count): {"logits": digest} for count in devices}}}

    monkeypatch.setattr(sharding_bits, "hashes", answered)
    row = sharding_bits.row(sharding_bits.Case("m", ("f32", None), "steps", (1, 2), (2, 4)), Journal())
    assert row["over"] == ["1", "2", "2 processes", "4 processes"]
    assert row["differing"] == [["4 processes", "logits"]]


def test_what_was_recorded_are_such_rows_and_nothing_differed():
    found = json.loads(RECORDED.read_text(encoding="utf-8"))
    asked = [
        (c.model, c.way[0], c.way[1] or "chosen", [*map(str, c.devices), *(f"{n} processes" for n in c.processes)])
        for c in cases()
    ]
    rows = [(row["model"], row["kv_cache"], row["formulation"], row["over"]) for row in found["rows"]]
    assert [row for row in asked if row in rows] == rows
    assert found["missing"] == len(asked) - len(rows)
    assert [row["differing"] for row in found["rows"]] == [[]] * len(rows)
