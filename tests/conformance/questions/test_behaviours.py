"""The questions about decode loops show the faults that they are for, on prompts that were not chosen for it."""

from dataclasses import replace

import pytest
from library import golden

from tritgold_conformance.faults import FAULTS
from tritgold_conformance.questions import behaviours as module
from tritgold_conformance.questions import text_and_bytes
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


@pytest.mark.parametrize("model", ["diffusing", "kjv-ar"])
def test_a_loop_that_knows_the_first_stop_alone_writes_on(model: str) -> None:
    run = golden(model)
    asked = next(q for q in behaviours(run, ("generate",)) if q.label == "greedy, ended by a stop token")
    prompt, count, options = asked.arguments
    stops = options["stop"]
    assert len(stops) > 1
    ended = answer_of(right(run), asked)
    one = {**options, "stop": stops[:1]}
    first = answer_of(right(run), replace(asked, arguments=(prompt, count, one)))
    assert ended[-1] in stops[1:-1]
    assert len(ended) < len(first)
    assert not same(ended, first)


def test_a_text_with_every_id_of_a_small_vocabulary_leaves_out_what_needs_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = right(golden("diffusing"))
    labels = [q.label for q in text_and_bytes._generated(base, [5, 6])]
    assert sum("by a million" in label for label in labels) == 2
    monkeypatch.setattr(text_and_bytes, "generate", lambda golden, *_: list(range(golden.config.vocab)))
    asked = list(text_and_bytes._generated(base, [5, 6]))
    assert [q.label for q in asked] == [label for label in labels if "by a million" not in label]
    (stops,) = (q.arguments[2]["stop"] for q in asked if "ended by" in q.label)
    assert stops == [5]


def test_an_answer_that_is_right_is_judged_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is tried only for answers that differ, and there it still decides."""
    run = golden("diffusing", 6)
    answers = {q.label: answer_of(right(run), q) for q in behaviours(run, ("generate",))}
    monkeypatch.setattr(module, "stable", lambda *_: False)
    module._stable.cache_clear()
    try:
        assert fair(run, answers, "generate") == []
        assert len(fair(run, answers, "generate", or_equal=True)) == len(answers)
        wrong = {label: [*ids, 0] for label, ids in answers.items()}
        assert fair(run, wrong, "generate", or_equal=True) == []
    finally:
        module._stable.cache_clear()
