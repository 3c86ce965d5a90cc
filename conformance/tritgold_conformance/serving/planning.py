"""From a request's fields to the answers that it asks for; what contradicts what."""

from collections.abc import Mapping, Sequence
from typing import Any

from tritgold.decode.sampling import GREEDY, Sampling
from tritgold_conformance.serving.answering import Answer
from tritgold_conformance.serving.api_errors import bad
from tritgold_conformance.serving.diffusing import BlockOptions
from tritgold_conformance.serving.request_fields import Common
from tritgold_conformance.serving.service import Service
from tritgold_conformance.serving.text_pieces import TextPieces

DRAWN = Sampling(temperature=1.0)  # OpenAI's default
_BLOCK_FIELDS = ("threshold", "block_size", "sub_block", "max_passes")


def blocks_of(service: Service, asked: Common) -> BlockOptions | None:
    """How a request is decoded by blocks; None for a token a pass. Raises ApiError for fields of the other."""
    way = service.way(asked)
    given = {name: value for name in _BLOCK_FIELDS if (value := getattr(asked, name)) is not None}
    if way == "ar":
        for name in given:
            raise bad(name, "is of block diffusion; name its way in decode")
        return None
    base = vars(service.blocks) if way == service.blocks.decode else {}
    return BlockOptions(**{**base, **given, "decode": way})


def answers_of(
    service: Service,
    asked: Common,
    prompts: Sequence[list[int]],
    count: int,
    wanted: int | None,
    otherwise: int | None,
    *,
    bias: Mapping[int, float],
    shown: int | None,
    hears: bool = False,
    drawn: Sampling = DRAWN,
    param: str = "logprobs",
) -> list[Answer]:
    """``count`` answers to each prompt, with seeds that follow one another.

    wanted: tokens asked for; otherwise: how many where none are. shown: log-probabilities a token; param: their field.
    """
    blocks = blocks_of(service, asked)
    if blocks is not None:
        has: dict[str, Any] = {
            param: shown is not None,
            "logit_bias": bias,
            "presence_penalty": asked.presence_penalty,
            "frequency_penalty": asked.frequency_penalty,
            "min_p": asked.min_p,
            "stop_token_ids": asked.stop_token_ids,
            "ignore_eos": asked.ignore_eos,
        }
        for name, value in has.items():
            if value:
                raise bad(name, "block diffusion has none", "unsupported_parameter")
        drawn = GREEDY
    stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    if any(stops):
        service.require_tokenizer("stop")
    stop_ids, seed, made = service.stop_ids(asked), service.seed(asked), []
    for prompt in prompts:
        budget = service.budget(prompt, wanted, otherwise)
        service.check_shown(shown, budget + (len(prompt) if hears else 0), param)
        for number in range(count):
            choosing = service.choosing(asked, bias, shown, number, seed, drawn)
            pieces = TextPieces(service.tokenizer, stops)
            made.append(Answer(prompt, budget, choosing, stop_ids, pieces, blocks, hears))
    return made
