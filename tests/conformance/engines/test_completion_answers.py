"""What a completion server's answer says, and which forms are refused."""

from typing import Any

import pytest

from tritgold_conformance.engines.completion_answers import UnreadableError, first_choice, generated_tokens, next_token


def test_both_forms_of_log_probabilities_are_read() -> None:
    entries = [{"id": 7, "logprob": -0.5}, {"id": 3, "logprob": -2}]
    content = {"content": [{"id": 7, "top_logprobs": entries}]}
    lists = {"tokens": ["token_id:7"], "top_logprobs": [{"token_id:7": -0.5, "token_id:3": -2}]}
    assert next_token(content) == next_token(lists) == (7, {7: -0.5, 3: -2.0})
    assert next_token(None) is next_token({"content": []}) is None


@pytest.mark.parametrize(
    ("logprobs", "said"),
    [
        ({"tokens": ["the"]}, "named by their text"),
        ({"content": [{"id": "7", "top_logprobs": []}]}, "unknown form"),
        ({"content": [{"id": 7, "top_logprobs": [{"id": 7, "logprob": None}]}]}, "twice, or without a number"),
        ({"tokens": ["token_id:1", "token_id:2"]}, "unknown form"),
        ([], "unknown form"),
    ],
)
def test_other_forms_are_refused(logprobs: Any, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        next_token(logprobs)


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": []}, {"choices": [3]}, {"choices": {}}])
def test_an_answer_without_choices_is_refused(answer: Any) -> None:
    with pytest.raises(UnreadableError, match="no choices"):
        first_choice(answer)


def test_generated_tokens_are_at_most_those_requested_and_0_if_not_reported() -> None:
    assert generated_tokens({"usage": {"completion_tokens": 40}}, 17) == 17
    for answer in (None, {}, {"usage": None}, {"usage": {"completion_tokens": True}}):
        assert generated_tokens(answer, 17) == 0
