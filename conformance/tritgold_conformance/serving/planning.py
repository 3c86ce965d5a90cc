"""From the fields of a request to the answers to be generated; refuses fields that contradict each other."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.errors import FormatError
from tritgold_conformance.serving.answering import Answer
from tritgold_conformance.serving.api_errors import bad
from tritgold_conformance.serving.diffusing import BlockOptions
from tritgold_conformance.serving.request_fields import Common, Message
from tritgold_conformance.serving.service import Service
from tritgold_conformance.serving.text_pieces import TextPieces

DRAWN = Sampling(temperature=1.0)  # OpenAI's default
_BLOCK_FIELDS = ("threshold", "block_size", "sub_block", "max_passes")


def blocks_of(service: Service, asked: Common) -> BlockOptions | None:
    """The options of block diffusion; None for one token per pass, and then ApiError for fields of block diffusion."""
    decode = asked.decode or service.decode
    given = {name: value for name in _BLOCK_FIELDS if (value := getattr(asked, name)) is not None}
    if decode == "ar":
        for name in given:
            raise bad(name, "belongs to block diffusion; name a preset in decode")
        return None
    base = vars(service.blocks) if decode == service.blocks.decode else {}
    return BlockOptions(**{**base, **given, "decode": decode})


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
    """``count`` answers to each prompt, with consecutive seeds. Raises ApiError.

    wanted, otherwise: see ``Service.budget``. bias: added to logits, by id. shown: log-probabilities for each token,
    None: none; param: the name of that field. hears: whether the prompt's log-probabilities are needed. drawn: the
    sampling of fields that the request leaves out.
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
                raise bad(name, "is not supported with block diffusion", "unsupported_parameter")
        drawn = GREEDY
    stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    if any(stops):
        service.require_tokenizer("stop")
    stop_ids, seed, made = service.stop_ids(asked), service.seed(asked), []
    budgets = [service.budget(prompt, wanted, otherwise) for prompt in prompts]
    service.check_shown(shown, count * (sum(budgets) + (sum(map(len, prompts)) if hears else 0)), param)
    for prompt, budget in zip(prompts, budgets, strict=True):
        for number in range(count):
            choosing = service.choosing(asked, bias, shown, number, seed, drawn)
            pieces = TextPieces(service.tokenizer, stops)
            made.append(Answer(prompt, budget, choosing, stop_ids, pieces, blocks, hears))
    return made


async def chat_text(service: Service, messages: list[Message], add_generation_prompt: bool) -> str:
    """Messages as text, by the model's chat template.

    Raises ApiError without a template, for messages that the template refuses, and for parts that are not text.
    """
    if service.template is None:
        what = "the model has no chat template; --chat-template FILE gives the server one"
        raise bad("messages", what, "no_template")
    plain = [_plain(n, message) for n, message in enumerate(messages)]
    try:
        return await asyncio.to_thread(service.template.text, plain, add_generation_prompt)
    except FormatError as error:
        what = error.message.removeprefix("cannot be rendered: ")
        raise bad("messages", f"the model's chat template refuses them: {what[:200]}") from None


def _plain(n: int, message: Message) -> dict[str, Any]:
    content = message.content
    if isinstance(content, list):
        texts = []
        for m, part in enumerate(content):
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise bad(f"messages[{n}].content[{m}]", "only parts of type text are supported")
            texts.append(part["text"])
        content = "".join(texts)
    if content is None:
        raise bad(f"messages[{n}].content", "is missing", "missing_parameter")
    name = {} if message.name is None else {"name": message.name}
    return {"role": message.role, "content": content, **name}
