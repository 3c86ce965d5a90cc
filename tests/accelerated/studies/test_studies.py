"""The forms of docs/xla-cpu.md: both of each give the same, and the report in docs has them all."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tritgold_xla.studies import floats, ternary
from tritgold_xla.studies.study import Form, difference, measured

ROOT = Path(__file__).parents[3]
SMALL = [*ternary.forms(256, 512), *floats.forms(4200, 128, 512, 3)]
ONE = np.arange(1, 5, dtype=np.int32)


def pair(**changes: object) -> Form:
    form = Form("name", "slow", "fast", lambda x: x * 2, lambda x: x + x, (ONE,), weights=8)
    return dataclasses.replace(form, **changes)


@pytest.mark.parametrize("form", SMALL, ids=lambda form: form.name)
def test_both_forms_give_the_same(form: Form) -> None:
    assert difference(form) <= form.tolerance


def test_the_report_has_every_form_and_no_other() -> None:
    report = json.loads((ROOT / "docs/data/xla-forms.json").read_text(encoding="utf-8"))
    shown = [row["name"].replace("12 layers", "3 layers") for row in report["forms"]]
    assert shown == [form.name for form in SMALL]
    assert all(row["slow_ms"] > 0 and row["fast_ms"] > 0 and row["ratio"] > 0 for row in report["forms"])


def test_a_row() -> None:
    row = measured(pair(), rounds=2, seconds=0)
    assert (row["name"], row["what"], row["slow"], row["fast"]) == ("name", "run", "slow", "fast")
    assert row["slow_gmacs"] == pytest.approx(8 / row["slow_ms"] / 1e6, rel=0.02)
    compiling = measured(pair(compiles=True))
    assert compiling["what"] == "compile"
    assert "slow_gmacs" not in compiling


@pytest.mark.parametrize("wrong", [lambda x: x * 2 + (x == 3), lambda x: (x * 2)[:3], lambda x: x * 2.0 / (x - 1)])
def test_a_form_that_gives_something_else_has_no_speed(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"name: the forms differ by .* allowed 0"):
        measured(pair(fast_form=wrong))


def test_names_are_those_of_one_form_each() -> None:
    assert len({form.name for form in SMALL}) == len(SMALL)
