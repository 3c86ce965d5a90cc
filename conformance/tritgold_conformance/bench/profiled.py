"""A decode step in parts: each operation alone, and what the whole step takes beyond their sum."""

import statistics

from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.plan import Case
from tritgold_conformance.bench.results import Part, Profile
from tritgold_conformance.bench.roofline import Roof
from tritgold_conformance.bench.timing import Timing


def profile_of(engine: Worker, roof: Roof, threads: int, case: Case, runs: int) -> Profile:
    """Parts, whole step and roof in turn, as everything that is compared; the first round is not counted.

    case: of the row ``decode``. Raises EngineError where the engine has no such parts.
    """
    rounds, steps, roofs = [], list[float](), list[float]()
    for number in range(runs + 1):
        parts = engine.ask("profile", context=case["context"])
        whole = engine.ask("measure", row="decode", case=case)["seconds"]
        if number:
            roofs.append(roof.sample())
            rounds.append(parts)
            steps += whole
    step = Timing.of(steps).median
    measured = [
        Part(
            name=same[0]["name"],
            calls=same[0]["calls"],
            moved=same[0]["moved"],
            seconds=Timing.of([part["seconds"] for part in same]).median,
        )
        for same in zip(*rounds, strict=True)
    ]
    total = sum(part.seconds for part in measured)
    return Profile(
        threads=threads, context=case["context"], parts=measured, total=total, step=step, overhead=step - total,
        roof=statistics.median(roofs),
    )  # fmt: skip
