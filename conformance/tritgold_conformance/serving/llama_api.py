"""llama.cpp's own endpoints, as far as its clients need them: /completion, /props, tokens, health, metrics."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tritgold.decode.sampling import Sampling
from tritgold_conformance.serving import log_probabilities, streams
from tritgold_conformance.serving.answering import Answer, Generation
from tritgold_conformance.serving.api_errors import bad
from tritgold_conformance.serving.planning import answers_of, chat_text
from tritgold_conformance.serving.request_fields import Detokenize, LlamaCompletion, Tokenize, llama_biases, read
from tritgold_conformance.serving.responding import respond
from tritgold_conformance.serving.service import Service

DRAWN = Sampling(temperature=0.8, top_k=40, top_p=0.95)  # llama.cpp's defaults of the samplers that are supported
_STOPS = {"stop": "eos", "stop_text": "word", "length": "limit", "context_full": "limit"}


async def completion(request: Request, service: Service) -> Response:
    """POST /completion."""
    asked = read(request.state.body, LlamaCompletion)
    prompts = await asyncio.to_thread(lambda: service.prompts_of(_flat(service, asked.prompt)))
    if len(prompts) != 1:
        raise bad("prompt", "one prompt; /v1/completions takes several")
    if asked.n_predict == 0:
        raise bad("n_predict", "expected 1 or more, or -1 for as many as there is room for")
    if asked.seed == (1 << 32) - 1:  # for llama.cpp this means a random seed
        asked.seed = None
    answers = answers_of(
        service, asked, prompts, 1, None if asked.n_predict < 0 else asked.n_predict, None,
        bias=llama_biases(asked.logit_bias, service.config.vocab), shown=asked.n_probs or None, drawn=DRAWN,
        param="n_probs",
    )  # fmt: skip
    (answer,), generation, started = answers, Generation(service, answers), time.monotonic()

    def part(text: str, begin: int) -> dict[str, Any]:
        made: dict[str, Any] = {"index": 0, "content": text, "stop": False}
        made["tokens"] = answer.tokens[begin:] if asked.return_tokens or asked.stream else []
        made |= {"tokens_predicted": len(answer.tokens), "tokens_evaluated": len(answer.prompt)}
        if asked.n_probs:
            made["completion_probabilities"] = log_probabilities.content(answer.shown[begin:], service.texts)
        return made

    def last(text: str, begin: int) -> dict[str, Any]:
        return part(text, begin) | _ended(service, answer, time.monotonic() - started)

    async def events() -> AsyncIterator[bytes]:
        begin = 0
        async for delta in generation.deltas():
            made = (part if delta.reason is None else last)(delta.text, begin)
            begin = len(answer.tokens)
            yield streams.event(made)

    stream = events() if asked.stream else None
    return await respond(request, service, generation, prompts, stream, lambda: last(answer.pieces.text, 0))


def _ended(service: Service, answer: Answer, seconds: float) -> dict[str, Any]:
    sampling = vars(answer.choosing.sampling) | {"n_predict": answer.budget, "min_p": answer.choosing.min_p}
    rate = {"predicted_n": len(answer.tokens), "prompt_n": len(answer.prompt) - answer.reused}
    return {
        "id_slot": 0,
        "stop": True,
        "model": service.name,
        "generation_settings": sampling,
        "truncated": answer.why == "context_full",
        "stop_type": _STOPS.get(answer.why or "", "none"),
        "stopping_word": "",
        "tokens_cached": answer.reused + answer.moved,
        **({"tokens_moved": answer.moved} if service.approximations else {}),
        "timings": {**rate, "predicted_ms": round(1000 * seconds, 3)},
    }


def _flat(service: Service, given: str | list[Any]) -> str | list[Any]:
    """llama.cpp's prompts may mix texts and ids: all parts together are one prompt. Only the first part gets a BOS.

    Texts alone are several prompts, as there.
    """
    if not isinstance(given, list) or {type(part) for part in given} != {str, int}:
        return given
    ids: list[int] = []
    for n, part in enumerate(given):
        ids += [part] if type(part) is int else service.encode(part, f"prompt[{n}]", special=n == 0)
    return ids


async def props(request: Request, service: Service) -> Response:
    """GET /props. It shows no file path of this machine."""
    settings = {"n_ctx": service.config.context, "params": {**vars(DRAWN), "n_predict": -1}}
    template = "" if service.template is None else service.template.source
    return streams.answer(
        {
            "default_generation_settings": settings,
            "total_slots": service.slots,
            "model_path": service.name,
            "model_alias": service.name,
            "chat_template": template,
            "bos_token": _token(service, service.config.bos),
            "eos_token": _token(service, service.config.eos[0] if service.config.eos else None),
            "modalities": {"vision": False, "audio": False},
            "build_info": f"tritgold-{service.backend}",
            "is_sleeping": False,
            "approximations": dict(service.approximations),
        }
    )


def _token(service: Service, token: int | None) -> str:
    return "" if token is None or service.tokenizer is None else service.tokenizer.token(token) or ""


async def tokenize(request: Request, service: Service) -> Response:
    """POST /tokenize, in llama.cpp's form (``content``) or vLLM's (``prompt`` or ``messages``)."""
    asked = read(request.state.body, Tokenize)
    given = [name for name in ("content", "prompt", "messages") if getattr(asked, name) is not None]
    if len(given) != 1:
        raise bad("content", "give one of content, prompt and messages", "missing_parameter")
    special = asked.add_special if asked.add_special is not None else asked.add_special_tokens
    if asked.messages is not None:
        text, special = await chat_text(service, asked.messages, asked.add_generation_prompt), special or False
    else:
        # By default llama.cpp adds no special tokens, and vLLM adds them.
        text = asked.content if asked.content is not None else asked.prompt or ""
        special = (asked.content is None) if special is None else special
    ids = await asyncio.to_thread(service.encode_plain, text, given[0], special)
    tokens: list[Any] = [{"id": i, "piece": service.texts.text(i)} for i in ids] if asked.with_pieces else [*ids]
    return streams.answer({"tokens": tokens, "count": len(ids), "max_model_len": service.config.context})


async def detokenize(request: Request, service: Service) -> Response:
    """POST /detokenize."""
    asked = read(request.state.body, Detokenize)
    text = await asyncio.to_thread(service.require_tokenizer("tokens").decode, service.ids(asked.tokens, "tokens"))
    return streams.answer({"content": text, "prompt": text})


async def health(request: Request, service: Service) -> Response:
    """GET /health: 200 while requests are accepted, 503 once the server is stopping."""
    if service.core.stopping:
        return streams.answer({"status": "stopping"}, 503)
    return streams.answer({"status": "ok"})


async def metrics(request: Request, service: Service) -> Response:
    """GET /metrics, for Prometheus."""
    counted, core = service.metrics, service.core
    waiting, running = core.model.unfinished
    counted.waiting.set(waiting)
    counted.running.set(running + service.diffusion.held)
    counted.positions.set(core.model.positions_in_use)
    counted.crashes.set(core.crashes)
    return Response(counted.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
