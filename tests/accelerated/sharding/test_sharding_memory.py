"""``measure.sharding_memory`` at a small size, with two real processes; and what it found at the widths of 30B."""

import json
from pathlib import Path

import pytest
from measure import sharding_memory

from tritgold_conformance.bench.shapes import ModelShape

RECORDED = Path(__file__).parents[3] / "docs/data/sharding-memory.json"
SMALL = ModelShape("small", 3, 512, 1024, 4, 4, 128, 2000, context=64)


@pytest.mark.sharding
def test_two_processes_load_their_parts(tmp_path):
    found = sharding_memory.report(SMALL, tmp_path)
    one, two = found["processes"]
    assert one["token"] == two["token"]
    packed, rows, cache = 3 * (4 * 512**2 + 3 * 512 * 1024) // 4, 2 * 2000 * 512, 3 * 2 * 512 * 256 * 2
    assert one["share"] == two["share"] == (packed + rows + cache) // 2
    assert found["file"] > one["share"]
    assert 0 < one["held"] <= one["most"]


def test_what_was_recorded_is_less_than_a_tenth_above_its_share():
    found = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert (found["hidden"], found["inter"]) == (6656, 17_920)
    assert found["layers"] >= 4
    for process in found["processes"]:
        assert process["of_share"] <= process["most_of_share"] < 1.1
