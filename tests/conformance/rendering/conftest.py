"""Reports of engines that pass, fail, give half of the levels, and give nothing; judged once."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from asked_once import judge
from library import Shown, golden, mutant

from tritgold.trace import Trace
from tritgold_conformance.comparing.activation_statistics import statistics
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.rendering.escaping import clean
from tritgold_conformance.results.levels import OF_THE_LADDER
from tritgold_conformance.results.report import Level, Problem, Report, not_judged

TOKENS = 6
# What an engine may call itself, and what none of the reports may obey.
HOSTILE = (
    "<script>alert(1)</script>\x00\x1b[31m\ud800 & \"q\" 'q' |`x`| [a](http://b) ]]> \u202e\uffff\nforged conforms."
)


KINDS = [
    "passing", "failing", "half", "not finite", "statistics", "one statistic", "nothing", "not judged", "hostile",
]  # fmt: skip


class Failing(Shown):
    def versions(self) -> dict[str, str]:
        return {"<img src=x onerror=alert(2)>": HOSTILE}


class Half(ReferenceEngine):
    name = "half"
    operation = step = None  # type: ignore[assignment]


class NotFinite(ReferenceEngine):
    name = "not finite"
    prefill = step = None  # type: ignore[assignment]

    def trace(self, tokens: list[int]) -> Trace:
        trace = super().trace(tokens)
        arrays = {**trace.arrays, "layers.1.ffn_act": np.full_like(trace["layers.1.ffn_act"], np.nan)}
        return replace(trace, arrays=arrays)


class StatisticsOnly:
    """Root mean squares and zeros, as wrong as its mutant's, but for one array of which it gives something else."""

    name = "statistics only"

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        arrays = Shown(mutant("silu"), len(tokens)).trace(tokens).arrays
        of = {name: statistics(array) for name, array in arrays.items()}
        given = {name: {"rms": s.rms or 0.0, "zeros": s.zeros or 0.0} for name, s in of.items()}
        given["layers.1.ffn_act"] = {"rms": float("nan")}
        given["layers.0.attn_mix"] = {"max": 1.0}
        return given


class OneStatistic:
    """Standard deviations of one kind of array."""

    name = "one statistic"

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        arrays = golden("seeded", TOKENS).trace.arrays
        return {name: {"std": statistics(a).std or 0.0} for name, a in arrays.items() if name.endswith("q.out")}


class Nothing:
    name = "nothing"


def judged(engine: object, speed: bool = False) -> Report:
    candidate = EngineUnderTest(engine, "my_module:My Engine")  # type: ignore[arg-type]
    return judge(golden("seeded", TOKENS), candidate, "seeded", with_speed=speed)


def with_ladder(report: Report) -> Report:
    """As if it had been asked more than one text."""
    levels = {n: Level(status="passed", compared=1) if n in OF_THE_LADDER else v for n, v in report.levels.items()}
    return msgspec.structs.replace(report, levels=levels)


@pytest.fixture(scope="session")
def reports() -> dict[str, Report]:
    checkpoint = golden("seeded", TOKENS).checkpoint
    failing = judged(Failing(mutant("silu"), TOKENS, HOSTILE))
    return {
        "passing": with_ladder(judged(ReferenceEngine(checkpoint, TOKENS), speed=True)),
        "failing": failing,
        "half": judged(Half(checkpoint, TOKENS)),
        "not finite": judged(NotFinite(checkpoint, TOKENS)),
        "statistics": judged(StatisticsOnly()),
        "one statistic": judged(OneStatistic()),
        "nothing": judged(Nothing()),
        "not judged": not_judged(
            Problem(kind="engine-crash", message=clean(HOSTILE)), clean(HOSTILE), "seeded", None, [1], clean(HOSTILE)
        ),
        "hostile": msgspec.structs.replace(
            failing, model=HOSTILE, mode=HOSTILE, repeat=HOSTILE, machine={HOSTILE: HOSTILE}
        ),
    }


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the reports in turn."""
    return str(request.param)
