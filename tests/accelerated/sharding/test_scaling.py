"""``measure.sharding`` at a small size: three real processes, the collectives of the second device counted."""

import pytest
from measure import sharding
from measure.sharding import WAYS, Sizes, report

SMALL = Sizes(2, 300, 128, 192, 4, 2, context=64, prompt=20, rounds=1, steps=2)


def check(found):
    assert [(point["devices"], point["threads"]) for point in found["measured"]] == list(WAYS)
    shared, predicted = found["measured"][-1], found["predicted"]
    assert predicted["collectives"] == shared["collectives"]["a_token"], "the formulas count what the program has"
    reading = predicted["bytes_read"] / found["bandwidth"]
    assert predicted["seconds"] == pytest.approx(reading + predicted["collectives"] * shared["collective"])
    assert found["measured"][0]["step"] / 2 < reading < 0.8 * found["measured"][0]["step"], "half, and what is whole"


@pytest.mark.sharding
def test_every_way_is_timed_and_collectives_are_counted():
    found = report(SMALL)
    check(found)
    assert all(point["step"] > 0 and point["prompt"] > 0 for point in found["measured"])
    assert ["collective" in point for point in found["measured"]] == [False, False, True]
    assert found["measured"][-1]["collectives"] == {"in_program": 4 + 2, "a_token": 4 * SMALL.layers + 2}


@pytest.mark.parametrize("counted", [4 * SMALL.layers + 2, 4 * SMALL.layers + 3])
def test_what_is_predicted(monkeypatch, counted):
    def answered(sizes, devices, threads):
        shared = {"collective": 1e-4, "collectives": {"in_program": 6, "a_token": counted}}
        return {"devices": devices, "threads": threads, "step": 0.02, "prompt": 0.3, **(shared if devices > 1 else {})}

    monkeypatch.setattr(sharding, "_asked", answered)
    if counted == 4 * SMALL.layers + 2:
        check(report(SMALL))
    else:
        with pytest.raises(AssertionError, match="the formulas count"):
            check(report(SMALL))
