"""The questions about decode loops show the faults that they are for, on prompts that nobody chose for it."""

import pytest
from library import golden

from tritgold_conformance.faults import FAULTS
from tritgold_conformance.questions.behaviours import behaviours, fair, right
from tritgold_conformance.questions.text_and_bytes import answer_of, same


@pytest.mark.parametrize(
    "name", ["past-the-stop", "temperature-after-top-p", "top-p-drops-the-crossing-token", "eos-ignored"]
)
def test_a_fault_of_a_decode_loop_changes_an_answer_that_is_judged(name: str) -> None:
    run, method = golden("diffusing"), "diffuse" if name == "past-the-stop" else "generate"
    faulty = FAULTS[name].apply(right(run))
    assert faulty is not None
    answers = {q.label: answer_of(faulty, q) for q in behaviours(run, (method,))}
    judged = fair(run, answers, method)
    assert any(not same(ours, theirs) for _, ours, theirs in judged)
