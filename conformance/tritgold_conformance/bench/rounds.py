"""Rounds of the benchmark's engine alone, each with the roof of its own time: kernels of a matrix, parts of a step."""

import statistics
from collections.abc import Callable
from typing import Any

from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.plan import Case
from tritgold_conformance.bench.results import Part, Profile, Result
from tritgold_conformance.bench.roofline import Roof, roofline_fraction
from tritgold_conformance.bench.timing import Timing


def products_of(
    ask: Callable[[], dict[str, Any]], roof: Roof, runs: int, row: str, case: Case, threads: int, weights: int
) -> list[Result]:
    """A row for each kernel that multiplies a matrix of so many weights. ask: one round of all of them; the first is
    not counted. A kernel whose products are wrong has no speed.
    """
    rounds, roofs, results = list[dict[str, Any]](), list[float](), []
    for number in range(runs + 1):
        answer = ask()
        if number:
            rounds.append(answer)
            roofs += [roof.sample()] if case["tokens"] == 1 else []
    for name, first in rounds[0].items():
        result = Result(row=row, engine=first["by"], threads=threads, case={**case, "way": name}, status="not passed",
                        unit="product", why=first["wrong"])  # fmt: skip
        results.append(result)
        if first["wrong"]:
            continue
        seconds = [one[name]["seconds"] for one in rounds]
        result.status, result.why, result.timing = "measured", first["why"], Timing.of(seconds)
        result.gmacs = weights * case["tokens"] / result.timing.median / 1e9
        result.bytes_moved = first["bytes_moved"]
        if result.bytes_moved is not None and roofs:
            result.roofline_fraction = roofline_fraction(result.bytes_moved, seconds, roofs)
    return results


def profile_of(engine: Worker, roof: Roof, threads: int, case: Case, runs: int) -> Profile:
    """Each operation of a decode step alone, and what the whole step takes beyond their sum.

    Parts, whole step and roof in turn, as everything that is compared; the first round is not counted. case: of the row
    ``decode``. Raises EngineError where the engine has no such parts.
    """
    rounds, steps, roofs = list[list[dict[str, Any]]](), list[float](), list[float]()
    for number in range(runs + 1):
        parts = engine.ask("profile", context=case["context"])
        whole = engine.ask("measure", row="decode", case=case)["seconds"]
        if number:
            roofs.append(roof.sample())
            rounds.append(parts)
            steps += whole
    measured = [
        Part(**{**same[0], "seconds": Timing.of([part["seconds"] for part in same]).median})
        for same in zip(*rounds, strict=True)
    ]
    step, total = Timing.of(steps).median, sum(part.seconds for part in measured)
    return Profile(
        threads=threads, context=case["context"], parts=measured, total=total, step=step, overhead=step - total,
        roof=statistics.median(roofs),
    )  # fmt: skip
