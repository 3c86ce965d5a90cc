"""The verdicts recorded before the judge was rebuilt, and those of now: no fault that failed a check passes it now."""

import json
from pathlib import Path
from typing import Any

import pytest
from measure.verdicts import differences, judged

from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.witnesses import MODELS

DATA = Path(__file__).parents[3] / "docs" / "data"


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"verdicts-{name}.json").read_text(encoding="utf-8"))
    return found


def test_nothing_that_failed_before_passes_now() -> None:
    before, now = recorded("before-0009"), recorded("now")
    assert before.keys() <= now.keys()
    for key, row in before.items():
        assert set(row["failing"]) <= set(now[key]["failing"]), key
        assert row["verdict"] in ("conforms", now[key]["verdict"]), key
        assert (now[key]["verdict"] == "conforms") or not key.startswith("right engine"), key


@pytest.mark.parametrize("name", ["silu", "past-the-stop"])
def test_a_row_of_now_comes_out_again(name: str) -> None:
    where = "diffusing" if name == "past-the-stop" else "seeded"
    checkpoint = MODELS[where]()
    changed = FAULTS[name].apply(Mutant(checkpoint))
    assert judged(checkpoint, changed, where) == recorded("now")[f"{name}, {where}"]


def test_each_difference_is_told() -> None:
    row = {"verdict": "conforms", "failing": [], "first": None}
    other = {"verdict": "does not conform", "failing": ["chat"], "first": None}
    found = list(differences({"a": row, "b": row, "c": row}, {"a": row, "b": other}))
    assert [line.split(":")[0] for line in found] == ["b", "b", "c"]
