"""Log-probabilities as JSON, in the three forms of OpenAI's two endpoints and of llama.cpp."""

from collections.abc import Sequence
from typing import Any

from tritgold_conformance.serving.choosing import Shown
from tritgold_conformance.serving.text_pieces import TokenTexts


def legacy(
    shown: Sequence[Shown | None], offsets: Sequence[int], texts: TokenTexts, by_id: bool, first: int | None = None
) -> dict[str, Any]:
    """``logprobs`` of /v1/completions: parallel lists. first: the prompt's first token, which has null (for echo).

    by_id: tokens are named ``token_id:N``; a token without its own text always is.
    """
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": [*offsets]}
    if first is not None:
        lists["tokens"].append(texts.name(first, by_id))
        lists["token_logprobs"].append(None)
        lists["top_logprobs"].append(None)
    for one in shown:
        if one is not None:
            ids, values = one.ids.tolist(), one.logprobs.tolist()
            names = texts.names(ids, by_id)
            # Under the name that it has among the most likely: another token may have the same text.
            own = dict(zip(ids, names, strict=True)).get(one.token)
            lists["tokens"].append(own or texts.name(one.token, by_id or texts.name(one.token) in names))
            lists["token_logprobs"].append(one.logprob)
            lists["top_logprobs"].append(dict(zip(names, values, strict=True)))
    return lists


def content(shown: Sequence[Shown | None], texts: TokenTexts) -> list[dict[str, Any]]:
    """``logprobs.content`` of /v1/chat/completions and ``completion_probabilities`` of /completion, with ids."""
    return [
        {**_one(one.token, one.logprob, texts), "top_logprobs": [_one(token, value, texts) for token, value in one.top]}
        for one in shown
        if one is not None
    ]


def _one(token: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    text = texts.text(token)
    return {"id": token, "token": text, "bytes": [*text.encode("utf-8", "replace")], "logprob": logprob}
