"""A mutation test of the cases: every fault of the library is caught by those that are recorded for it."""

from collections.abc import Iterator

import numpy as np
import pytest
from case_flags import all_drafts, fails, most_telling, shows

from tritgold_conformance.case_vectors.groups import expected
from tritgold_conformance.case_vectors.manifest import recorded
from tritgold_conformance.case_vectors.write import UNSEEN, flags_of_cases
from tritgold_conformance.faults import FAULTS

CASES = {name: (group, draft) for group, draft, name in all_drafts()}
RECORD = "make cases"


def caught_by(fault: str) -> Iterator[str]:
    """Of the recorded cases those that show it; whole passes, which are slow, only where there is nothing else."""
    cases = recorded().faults[fault].cases
    quick = [case for case in cases if CASES[case][1].kind != "logits"]
    for case in quick or cases[:1]:
        group, draft = CASES[case]
        if shows(group, draft, expected(group, draft), fault):
            yield case


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_the_cases_that_are_there_for_it(fault: str) -> None:
    if fault in UNSEEN:
        pytest.skip(UNSEEN[fault])
    assert fault in recorded().faults, f"shown by no case: add one, then {RECORD}"
    cases = recorded().faults[fault].cases
    quick = [case for case in cases if CASES[case][1].kind != "logits"]
    assert list(caught_by(fault)) == (quick or cases[:1])


def test_every_fault_is_shown_or_said_to_be_unseen() -> None:
    assert recorded().faults.keys() | recorded().unseen.keys() == FAULTS.keys()
    assert not recorded().faults.keys() & recorded().unseen.keys()
    assert recorded().unseen == UNSEEN


def test_every_area_of_the_library_is_shown() -> None:
    shown = {fault.area for name, fault in FAULTS.items() if name not in UNSEEN}
    assert {flag.area for flag in recorded().faults.values()} == shown


def test_a_case_that_cannot_show_a_fault_does_not() -> None:
    """Otherwise the test above could pass on anything."""
    for case, fault in (
        ("operations/quantize/zero", "half-away"),
        ("operations/bit-linear/tokens-17", "rows-from-32-on-zero"),
        ("operations/rope/position-0", "rope-missing"),
        ("operations/bit-linear/same-sign-128", "int16-wraps"),
        ("files/i2_s/all-zero", "i2s-128-as-64"),
        ("files/hf/random-4x160", "hf-rows-interleaved"),
        ("models/small/logits-prefill", "kv-slot-overwritten"),
        ("operations/kv/int8", "kv-newest-scale"),
    ):
        group, draft = CASES[case]
        assert not shows(group, draft, expected(group, draft), fault), case


def test_the_right_answer_is_no_failure_and_nothing_is_one() -> None:
    for group, draft in list(CASES.values())[::7]:
        right = expected(group, draft)
        assert not fails(draft, right, right)
        assert fails(draft, right, type(right)())


def test_the_most_telling_cases_show_the_fewest_faults() -> None:
    seen = {"one": ["g/a", "g/b", "g/c", "g/d", "g/e"], "two": ["g/a"], "three": ["g/a"]}
    assert most_telling(seen)["one"] == ["g/b", "g/c", "g/d", "g/e"]
    assert flags_of_cases({"one": ["g/b"], "two": ["g/a", "g/b"]}) == {"g/b": ["one", "two"], "g/a": ["two"]}


def test_edge_inputs_are_among_the_cases() -> None:
    """Those of ``check`` itself: there is one notion of a telling input."""
    from tritgold_conformance.questions.edge_inputs import gates, ties_zeros_tiny

    assert np.array_equal(CASES["operations/quantize/ties-zeros-tiny"][1].inputs["x"], ties_zeros_tiny(24))
    assert np.array_equal(CASES["operations/ffn-activation/relu2-signs-and-300"][1].inputs["gate"], gates(24)["gate"])
