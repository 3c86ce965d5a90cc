"""docs/data/peers-judged.json: each difference of a peer is explained there, and a live one is judged the same."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from judged import CASES, Case, case_of, row_of

REPORT = json.loads((Path(__file__).parents[2] / "docs/data/peers-judged.json").read_text(encoding="utf-8"))
live = pytest.mark.skipif(
    not os.environ.get("TRITGOLD_PEERS_PYTHON"), reason="the peers run only where TRITGOLD_PEERS_PYTHON names theirs"
)


def unexplained(row: dict[str, Any]) -> bool:
    """A difference without a name; or with one with which it does not conform, and which fits not even half better."""
    if row["verdict"] == "conforms":
        return row["explained"] is not None
    why = row["explained"]
    if why is None or why["conforms_with_it"]:
        return why is None
    return bool(why["positions"] < max(10, 2 * why["next_positions"], 2 * why["without"]))


def test_every_case_is_recorded() -> None:
    assert [case_of(row) for row in REPORT["rows"]] == list(CASES)


def test_no_difference_is_left_unexplained() -> None:
    assert [case_of(row) for row in REPORT["rows"] if unexplained(row)] == []
    row = next(row for row in REPORT["rows"] if row["explained"])
    assert unexplained({**row, "explained": None})
    worse = {"conforms_with_it": False, "positions": row["explained"]["without"]}
    assert unexplained({**row, "explained": {**row["explained"], **worse}})


def test_what_conforms_has_a_speed_and_says_whose_clock_it_was() -> None:
    clocks = {row["engine"]: row["speed"]["clock"] for row in REPORT["rows"] if row["speed"]}
    assert clocks == {"transformers": "program", "llama.cpp": "program", "server": "judge"}
    assert [row for row in REPORT["rows"] if (row["speed"] is not None) != (row["verdict"] == "conforms")] == []


@live
def test_llama_cpp_differs_and_is_explained_as_recorded(tmp_path: Path) -> None:
    case = Case("llama.cpp", "kjv-ar", "llama-cpp-q8_k")
    now, (then,) = row_of(case, tmp_path), [row for row in REPORT["rows"] if case_of(row) == case]
    assert (now["verdict"], now["explained"]["by"]) == (then["verdict"], then["explained"]["by"])
    assert now["explained"]["conforms_with_it"]
