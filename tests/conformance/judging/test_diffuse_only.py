"""An engine that only writes by block diffusion is judged by what it writes: every method is optional."""

from collections.abc import Callable

import pytest
from asked_once import judge
from library import golden

from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.generating import Options
from tritgold_conformance.questions.behaviours import right

Written = list[int]


class OnlyDiffuses:
    """The golden decoder, with a change to what it wrote."""

    name = "only-diffuses"

    def __init__(self, change: Callable[[Written], Written]) -> None:
        self._engine, self._change = FaultyEngine(right(golden("diffusing"))), change

    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> Written:
        return self._change(self._engine.diffuse(prompt, max_tokens, options))


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda ids: ids, "conforms"),
        (lambda ids: [7] * len(ids), "does not conform"),
        (lambda ids: [], "does not conform"),
        (lambda ids: ids[:-1], "does not conform"),
        (lambda ids: [*ids[:-1], ids[-1] ^ 1], "does not conform"),
    ],
    ids=["right", "sevens", "nothing", "one too few", "the last token"],
)
def test_what_it_writes_decides(change: Callable[[Written], Written], verdict: str) -> None:
    report = judge(golden("diffusing"), EngineUnderTest(OnlyDiffuses(change)), "diffusing", with_speed=False)
    assert report.verdict == verdict
    assert report.levels["diffuse"].status == ("passed" if verdict == "conforms" else "failed")
    assert {level.status for name, level in report.levels.items() if name != "diffuse"} == {"not assessed"}
