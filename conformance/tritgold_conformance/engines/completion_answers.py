"""Reads the answers of completion servers (OpenAI's API, as llama.cpp and vLLM give it), which are untrusted."""

import re
from typing import Any

from tritgold.formats.untrusted_text import printable


class UnreadableError(Exception):
    """The answer has an unknown form; the message says what is missing or wrong."""


def first_choice(answer: Any) -> dict[str, Any]:
    """``choices[0]`` of an answer. Raises UnreadableError."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise UnreadableError("the answer holds no choices")
    return choices[0]


def next_token(logprobs: Any) -> tuple[int, dict[int, float]] | None:
    """(token, {id: log-probability}) from ``logprobs`` of a choice of one token; None if it shows none.

    Two forms: ``content``, a list with ids (llama.cpp), and the older one of parallel lists (vLLM). Raises
    UnreadableError for another form, for a token that is shown twice, and for tokens that are named by their text.

    >>> next_token({"tokens": ["token_id:7"], "top_logprobs": [{"token_id:7": -0.5, "token_id:3": -2.0}]})
    (7, {7: -0.5, 3: -2.0})
    """
    if logprobs is None:
        return None
    try:
        if "content" in logprobs:
            if not logprobs["content"]:  # no token was generated: the end of the sequence
                return None
            (written,) = logprobs["content"]
            pairs = [(_whole(entry["id"]), entry["logprob"]) for entry in written["top_logprobs"]]
            token = _whole(written["id"])
        else:
            (text,) = logprobs["tokens"]
            shown = (logprobs.get("top_logprobs") or [{}])[0]
            pairs, token = [(_id_of(name), value) for name, value in shown.items()], _id_of(text)
        found = {number: float(value) for number, value in pairs if type(value) in (int, float)}
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnreadableError(f"the log-probabilities are of an unknown form ({printable(error)})") from None
    if len(found) < len(pairs):
        raise UnreadableError("a token is shown twice, or without a number")
    return token, found


def generated_tokens(answer: Any, most: int) -> int:
    """The number of tokens that a server reports to have generated, at most ``most``; 0 if it reports none."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return min(count, most) if type(count) is int else 0


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a token without an id")
    return value


def _id_of(text: str) -> int:
    """``token_id:7`` -> 7. Token texts are refused, because two tokens can have the same text."""
    found = re.fullmatch(r"token_id:(\d{1,9})", text)
    if found is None:
        raise UnreadableError("tokens are named by their text; ids are needed (return_tokens_as_token_ids)")
    return int(found[1])
