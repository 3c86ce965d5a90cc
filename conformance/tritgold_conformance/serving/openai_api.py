"""OpenAI's endpoints: /v1/completions, /v1/chat/completions, /v1/models."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tritgold_conformance.serving import log_probabilities, streams
from tritgold_conformance.serving.answering import Answer, Generation
from tritgold_conformance.serving.api_errors import bad
from tritgold_conformance.serving.choosing import Shown
from tritgold_conformance.serving.planning import answers_of, chat_text
from tritgold_conformance.serving.request_fields import Chat, Completion, OpenAiCommon, biases, read
from tritgold_conformance.serving.responding import respond
from tritgold_conformance.serving.service import Service

# (index of the answer, new text, first new token, why it ended, whether it is the first event) -> an entry of choices.
Choice = Callable[[int, str, int, str | None, bool], dict[str, Any]]


async def completions(request: Request, service: Service) -> Response:
    """POST /v1/completions."""
    asked = read(request.state.body, Completion)
    service.check_model(asked.model)
    prompts = await asyncio.to_thread(service.prompts_of, asked.prompt)  # other requests are served meanwhile
    echo, nothing = bool(asked.echo), asked.max_tokens == 0
    if nothing and not echo:
        raise bad("max_tokens", "0 is only allowed with echo")
    answers = answers_of(
        service, asked, prompts, asked.n or 1, 1 if nothing else asked.max_tokens, 16,
        bias=biases(asked.logit_bias, service.config.vocab), shown=asked.logprobs,
        hears=echo and asked.logprobs is not None,
    )  # fmt: skip
    by_id = asked.return_tokens_as_token_ids or service.tokenizer is None

    def choice(index: int, text: str, begin: int, reason: str | None, first: bool) -> dict[str, Any]:
        answer = answers[index]
        prefix = service.tokenizer.decode(answer.prompt) if echo and first and service.tokenizer is not None else ""
        made: dict[str, Any] = {"index": index, "text": prefix + ("" if nothing else text), "logprobs": None}
        if asked.logprobs is not None:
            made["logprobs"] = _legacy(service, answer, begin, by_id, echo and first, nothing)
        made["finish_reason"] = "length" if nothing and reason else reason
        if asked.return_token_ids or service.tokenizer is None:
            made["token_ids"] = [] if nothing else answer.tokens[begin:]
        return made

    head = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion"}
    return await _served(request, service, asked, Generation(service, answers), prompts, choice, head, nothing)


async def chat(request: Request, service: Service) -> Response:
    """POST /v1/chat/completions."""
    asked = read(request.state.body, Chat)
    service.check_model(asked.model)
    if asked.top_logprobs and not asked.logprobs:
        raise bad("top_logprobs", "needs logprobs: true")
    text = await chat_text(service, asked.messages, asked.add_generation_prompt)
    prompts = [await asyncio.to_thread(service.encode, text, "messages", special=False)]
    shown = (asked.top_logprobs or 0) if asked.logprobs else None
    if asked.max_tokens == 0:
        raise bad("max_tokens", "expected 1 or more, or -1 for as many as there is room for")
    if asked.max_tokens is not None and asked.max_completion_tokens not in (None, asked.max_tokens):
        raise bad("max_completion_tokens", "contradicts max_tokens")
    answers = answers_of(
        service, asked, prompts, asked.n or 1, asked.max_completion_tokens or asked.max_tokens, None,
        bias=biases(asked.logit_bias, service.config.vocab), shown=shown,
        param="top_logprobs" if asked.top_logprobs else "logprobs",
    )  # fmt: skip
    streaming = bool(asked.stream)

    def choice(index: int, text: str, begin: int, reason: str | None, first: bool) -> dict[str, Any]:
        answer = answers[index]
        said: dict[str, Any] = {"role": "assistant"} if first or not streaming else {}
        if text or not streaming or first:
            said["content"] = text
        made: dict[str, Any] = {"index": index, "delta" if streaming else "message": said, "logprobs": None}
        if asked.logprobs:
            made["logprobs"] = {"content": log_probabilities.content(answer.shown[begin:], service.texts)}
        made["finish_reason"] = reason
        if asked.return_token_ids:
            made["token_ids"] = answer.tokens[begin:]
        return made

    kind = "chat.completion.chunk" if streaming else "chat.completion"
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind}
    return await _served(request, service, asked, Generation(service, answers), prompts, choice, head)


async def models(request: Request, service: Service) -> Response:
    """GET /v1/models."""
    return streams.answer({"object": "list", "data": [_model(service)]})


async def model(request: Request, service: Service) -> Response:
    """GET /v1/models/NAME."""
    service.check_model(request.scope["path"].removeprefix("/v1/models/"))
    return streams.answer(_model(service))


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.name,
        "object": "model",
        "created": service.started,
        "owned_by": "tritgold",
        "max_model_len": service.config.context,
        "meta": {"n_vocab": service.config.vocab, "n_ctx_train": service.config.context},
    }


async def _served(
    request: Request,
    service: Service,
    asked: OpenAiCommon,
    generation: Generation,
    prompts: Sequence[list[int]],
    choice: Choice,
    head: dict[str, Any],
    nothing: bool = False,
) -> Response:
    """The answers, as one object or as events. nothing: the generated token is not part of the answer (echo alone)."""
    head |= {"created": int(time.time()), "model": service.name, "system_fingerprint": f"tritgold-{service.backend}"}
    answers = generation.answers

    def usage() -> dict[str, Any]:
        written = 0 if nothing else sum(len(answer.tokens) for answer in answers)
        read_ = sum(map(len, prompts))
        details = {"cached_tokens": sum(answer.reused for answer in answers)}
        if service.approximations:
            details["moved_tokens"] = sum(answer.moved for answer in answers)
        return {"prompt_tokens": read_, "completion_tokens": written, "total_tokens": read_ + written,
                "prompt_tokens_details": details}  # fmt: skip

    async def events() -> AsyncIterator[bytes]:
        with_tokens = bool(asked.return_token_ids) or answers[0].choosing.shown is not None
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        seen = [0] * len(answers)
        async for delta in generation.deltas():
            index, first = delta.which, not seen[delta.which]
            begin = max(seen[index] - 1, 0)
            if not (delta.text or delta.reason or with_tokens or first):
                continue
            seen[index] = len(answers[index].tokens) + 1
            made = choice(index, delta.text, begin, delta.reason, first)
            yield streams.event({**head, "choices": [made], **({"usage": None} if with_usage else {})})
        if with_usage:
            yield streams.event({**head, "choices": [], "usage": usage()})
        yield streams.DONE

    def whole() -> dict[str, Any]:
        choices = [choice(n, answer.pieces.text, 0, answer.reason, True) for n, answer in enumerate(answers)]
        return {**head, "choices": choices, "usage": usage()}

    return await respond(request, service, generation, prompts, events() if asked.stream else None, whole)


def _legacy(
    service: Service, answer: Answer, begin: int, by_id: bool, with_prompt: bool, nothing: bool
) -> dict[str, Any]:
    """``logprobs`` of the tokens from ``begin`` on. with_prompt: of the prompt's tokens too, before them."""
    shown: list[Shown | None] = [] if nothing else answer.shown[begin:]
    offsets = [] if nothing else answer.offsets[begin:]
    if not with_prompt:
        return log_probabilities.legacy(shown, offsets, service.texts, by_id)
    at, of_prompt = 0, []
    for token in answer.prompt:
        of_prompt.append(at)
        at += len(service.texts.text(token))
    every = [*answer.prompt_shown, *shown]
    offsets = [*of_prompt, *(at + offset for offset in offsets)]
    return log_probabilities.legacy(every, offsets, service.texts, by_id, first=answer.prompt[0])
