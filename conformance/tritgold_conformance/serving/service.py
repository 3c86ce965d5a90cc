"""What all endpoints share: the model and its tokenizer, the core, limits and metrics."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tritgold.checkpoint import Checkpoint
from tritgold.decode.sampling import Sampling
from tritgold.errors import TritgoldError
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.chat.template import ChatTemplate
from tritgold_conformance.serving import api_errors
from tritgold_conformance.serving.api_errors import ApiError, bad
from tritgold_conformance.serving.choosing import Choosing
from tritgold_conformance.serving.core import Core
from tritgold_conformance.serving.diffusing import BlockDiffusion, BlockOptions
from tritgold_conformance.serving.request_fields import Common, Ids
from tritgold_conformance.serving.text_pieces import TokenTexts

MOST_SHOWN = 1 << 22  # log-probabilities of one request
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


@dataclass(frozen=True)
class Limits:
    """The limits of one server.

    body: bytes. tokens: of one answer; None: up to the context. seconds: for a whole request; head_seconds,
    body_seconds: to receive its head and its body; write_seconds: for the client to take one event. connections: at
    once. requests: in flight, waiting ones included. keys: each request needs one of them; empty: no key is needed.
    """

    body: int = 8 << 20
    tokens: int | None = None
    seconds: float = 600.0
    head_seconds: float = 20.0
    body_seconds: float = 20.0
    write_seconds: float = 20.0
    connections: int = 256
    requests: int = 128
    keys: tuple[str, ...] = ()


class Metrics:
    """Counters and times for Prometheus, in a separate registry, so that several servers share nothing."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("tritgold_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.ended = Counter("tritgold_answers", "Texts that ended, by reason.", ["reason"], registry=registry)
        self.prompt_tokens = Counter("tritgold_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.reused_tokens = Counter("tritgold_prompt_tokens_reused", "Of them found cached.", registry=registry)
        self.tokens = Counter("tritgold_generated_tokens", "Generated tokens.", registry=registry)
        self.first_token = Histogram(
            "tritgold_first_token_seconds", "From a request to its first token.", buckets=_SECONDS, registry=registry
        )
        self.seconds = Histogram(
            "tritgold_request_seconds", "From a request to the end of its answer.", buckets=_SECONDS, registry=registry
        )
        self.in_flight = Gauge("tritgold_requests_in_flight", "Requests that are being answered.", registry=registry)
        self.running = Gauge("tritgold_texts_running", "Texts in the model's passes.", registry=registry)
        self.waiting = Gauge("tritgold_texts_waiting", "Texts that wait for a place.", registry=registry)
        self.positions = Gauge("tritgold_kv_positions", "Positions of the KV cache in use.", registry=registry)
        self.crashes = Gauge("tritgold_engine_restarts", "Times that the engine was made again.", registry=registry)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)


@dataclass(eq=False)
class Service:
    """One model that is served. name: of the model in the API. log: receives each log entry as fields.

    prompts: whether the log has the prompts' ids. decode: the default decoder; blocks: the default options of block
    diffusion. local: whether only this machine can connect. approximations: options that make answers inexact, by
    name; empty by default. slots: texts in one pass. started: seconds since 1970.
    """

    name: str
    checkpoint: Checkpoint
    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    core: Core
    diffusion: BlockDiffusion
    backend: str
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    log: Callable[[Mapping[str, Any]], None] = lambda fields: None
    prompts: bool = False
    decode: str = "ar"
    blocks: BlockOptions = field(default_factory=BlockOptions)
    local: bool = True
    approximations: Mapping[str, int] = field(default_factory=dict)
    slots: int = 1
    started: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.config = self.checkpoint.config
        self.texts = TokenTexts(self.tokenizer)

    def require_tokenizer(self, param: str) -> Tokenizer:
        """The tokenizer. Raises ApiError if the model has none."""
        if self.tokenizer is None:
            raise bad(param, "the model has no tokenizer; give token ids", "no_tokenizer")
        return self.tokenizer

    def encode_plain(self, text: str, param: str, special: bool) -> list[int]:
        """Ids of a text, which may be none. special: with BOS, as the tokenizer says. Raises ApiError."""
        tokenizer = self.require_tokenizer(param)
        try:
            return tokenizer.encode(text, special)
        except TritgoldError as error:
            raise api_errors.of(error, param) from None

    def encode(self, text: str, param: str, special: bool = True) -> list[int]:
        """Ids of a prompt. Raises ApiError if there is none, and for two BOS at the beginning."""
        ids = self.encode_plain(text, param, special)
        if not ids:
            raise bad(param, "holds no token")
        bos = self.config.bos
        if special and bos is not None and ids[:2] == [bos, bos]:
            raise bad(param, "the text begins with a BOS, and the tokenizer adds another", "two-bos")
        return ids

    def prompts_of(self, given: str | list[Any]) -> list[list[int]]:
        """The prompts of a request: a text, texts, ids, or lists of ids. Raises ApiError."""
        if isinstance(given, str):
            return [self.encode(given, "prompt")]
        if not given:
            raise bad("prompt", "is empty")
        if all(type(one) is int for one in given):
            return [self.ids(given, "prompt")]
        if len(given) > self.limits.requests:
            raise bad("prompt", f"at most {self.limits.requests} prompts")
        found = []
        for n, one in enumerate(given):
            if isinstance(one, str):
                found.append(self.encode(one, f"prompt[{n}]"))
            elif isinstance(one, list) and one and all(type(token) is int for token in one):
                found.append(self.ids(one, f"prompt[{n}]"))
            else:
                raise bad(f"prompt[{n}]", "expected a text, or a list of token ids")
        return found

    def ids(self, given: Ids, param: str) -> Ids:
        """The given token ids. Raises ApiError if one is not in the vocabulary."""
        for token in given:
            if not 0 <= token < self.config.vocab:
                shown = token if token.bit_length() < 64 else "an integer without end"
                raise bad(param, f"{shown} is not a token id, 0 to {self.config.vocab - 1}", "token-id")
        return given

    def budget(self, prompt: list[int], wanted: int | None, otherwise: int | None) -> int:
        """The maximum number of tokens to generate, 1 or more. Raises ApiError.

        wanted: the requested number; -1: up to the end of the context; None: ``otherwise``; both None: as -1.
        """
        wanted, otherwise = (None, None) if wanted == -1 else (wanted, otherwise)
        room = self.config.context - len(prompt) + 1
        most = self.limits.tokens
        if room < 1:
            raise bad("prompt", f"{len(prompt)} tokens, and the model has {self.config.context} positions",
                      "context_length_exceeded")  # fmt: skip
        if wanted is not None and most is not None and wanted > most:
            raise bad("max_tokens", f"found {wanted}, expected at most {most}")
        allowed = min(room, room if most is None else most)
        return max(1, min(allowed, (otherwise or allowed) if wanted is None else wanted))

    def choosing(
        self, asked: Common, bias: Mapping[int, float], shown: int | None, number: int, seed: int, default: Sampling
    ) -> Choosing:
        """How the tokens of the ``number``-th answer to a prompt are chosen. Raises ApiError."""
        given = {
            "temperature": asked.temperature,
            "top_k": None if asked.top_k is None else max(asked.top_k, 0),
            "top_p": asked.top_p,
            "repetition_penalty": asked.repetition_penalty or asked.repeat_penalty,
        }
        values = {name: value for name, value in given.items() if value is not None}
        try:
            sampling = Sampling(**{**vars(default), **values, "seed": (seed + number) % (1 << 64)})
        except TritgoldError as error:
            raise api_errors.of(error) from None
        return Choosing(
            sampling, asked.presence_penalty or 0.0, asked.frequency_penalty or 0.0, bias, asked.min_p or 0.0, shown
        )

    def seed(self, asked: Common) -> int:
        """The seed of a request, or a random one."""
        return secrets.randbits(63) if asked.seed in (None, -1) else asked.seed

    def stop_ids(self, asked: Common) -> tuple[int, ...]:
        """The ids that end the text. Raises ApiError for an id outside the vocabulary."""
        own = () if asked.ignore_eos else self.config.eos
        return tuple(dict.fromkeys([*own, *self.ids(asked.stop_token_ids, "stop_token_ids")]))

    def check_shown(self, shown: int | None, tokens: int, param: str) -> None:
        """Raises ApiError for more log-probabilities than the vocabulary has, or more than MOST_SHOWN in all.

        tokens: of all answers of the request.
        """
        if shown is None:
            return
        if shown > self.config.vocab:
            raise bad(param, f"found {shown}, expected at most {self.config.vocab}, the vocabulary")
        if shown * tokens > MOST_SHOWN:
            raise bad(param, f"{shown} for each of {tokens} tokens is more than {MOST_SHOWN}: ask for fewer tokens")

    def check_model(self, asked: str | None) -> None:
        """Raises ApiError for the name of another model; None and "" are accepted."""
        if asked and asked != self.name:
            what = f"model: {asked[:80]!r} is not served; expected {self.name!r}"
            raise ApiError(404, what, "model", "model_not_found")
