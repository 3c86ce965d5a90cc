"""An engine that only writes by block diffusion is judged by what it writes: every method is optional."""

from collections.abc import Callable

import pytest
from asked_once import diagnose, judge
from library import golden, mutant

from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.generating import Options
from tritgold_conformance.questions.behaviours import right

Written = list[int]


class OnlyDiffuses:
    """The golden decoder, with a change to what it wrote."""

    name = "only-diffuses"

    def __init__(self, change: Callable[[Written], Written] = lambda ids: ids, made: Mutant | None = None) -> None:
        self._engine, self._change = FaultyEngine(made or right(golden("diffusing"))), change

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


# Among them faults of attention, which meet its blocks here alone.
KNOWN = [FAULTS[name] for name in ("mask-missing", "kv-heads-tiled", "no-commit", "past-the-stop", "eos-ignored")]


def test_a_right_one_is_told_which_faults_it_could_not_have_shown() -> None:
    found = diagnose(golden("diffusing"), EngineUnderTest(OnlyDiffuses()), "diffusing", faults=KNOWN)
    assert (found.verdict, found.exit_code, found.levels) == ("nothing to explain", 0, ["answers"])
    assert found.could_not_see == ["eos-ignored"]


@pytest.mark.parametrize("name", ["no-commit", "past-the-stop"])
def test_its_fault_is_named(name: str) -> None:
    engine = EngineUnderTest(OnlyDiffuses(made=mutant(name, on="diffusing")))
    found = diagnose(golden("diffusing"), engine, "diffusing", faults=KNOWN, unseen=False)
    assert [named.fault for named in found.faults] == [name]


def test_text_of_masks_is_not_nothing() -> None:
    masks = OnlyDiffuses(lambda ids: [golden("diffusing").checkpoint.config.mask] * len(ids))  # type: ignore[list-item]
    found = diagnose(golden("diffusing"), EngineUnderTest(masks), "diffusing", faults=KNOWN, unseen=False)
    assert (found.verdict, found.exit_code) == ("none of the known faults", 1)
