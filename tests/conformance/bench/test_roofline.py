"""The roof is measured again in every round, and what is faster than it is said."""

import io
from typing import Any

from rich.console import Console

from tritgold_conformance.bench.results import Part, Profile, Report
from tritgold_conformance.bench.roofline import Roof, roofline_fraction
from tritgold_conformance.bench.table import render


class Reading:
    """Stands in for the process that reads."""

    def __init__(self) -> None:
        self.said = [{"a": 1.0, "b": 8.0}, {"a": 3.0, "b": 2.0}, {"a": 5.0, "b": 4.0}]

    def ask(self, do: str, **what: Any) -> dict[str, float]:
        assert (do, what) == ("bandwidth", {"size": 7})
        return self.said.pop(0)


def test_each_sample_is_its_own_and_the_median_is_reported() -> None:
    roof = Roof(Reading(), threads=2, size=7)  # type: ignore[arg-type]
    assert [roof.sample() for _ in range(3)] == [8.0, 3.0, 5.0]
    assert (roof.found.best, roof.found.ways, roof.found.samples) == (5.0, {"a": 3.0, "b": 4.0}, 3)


def test_a_round_is_held_to_the_roof_of_its_own_time() -> None:
    # The machine halves its speed in the second round: of both, so the share stays.
    assert roofline_fraction(10, [1.0, 2.0, 1.0], [20.0, 10.0, 20.0]) == 0.5
    assert roofline_fraction(10, [1.0, 1.0, 1.0], [20.0, 10.0, 40.0]) == 0.5


def shown(roof: float) -> str:
    part = Part(name="head", calls=1, seconds=0.5, bytes_moved=1_000_000_000)
    small = Part(name="rope", calls=1, seconds=0.1, bytes_moved=0)
    profile = Profile(threads=1, context=64, parts=[part, small], total=0.6, step=0.6, overhead=0.0, roof=roof)
    report = Report(
        date="", shape="x", model="", config={}, command="", machine={"processor": "p", "cores": 1}, engines=[],
        bandwidth=[], results=[], profiles=[profile],
    )  # fmt: skip
    out = io.StringIO()
    render(report, Console(file=out, width=110))
    return out.getvalue()


def test_a_part_that_is_faster_than_the_roof_is_named() -> None:
    assert "faster than the roof of these rounds, 1.9 GB/s: head" in shown(1.9e9)
    assert "faster than the roof" not in shown(2.1e9)
