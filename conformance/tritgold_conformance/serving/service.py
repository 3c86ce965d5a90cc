"""What all endpoints share: the model, its texts, the core, and what a server allows."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from tritgold_conformance.serving.metrics import Metrics
from tritgold_conformance.serving.request_fields import Common, Ids
from tritgold_conformance.serving.text_pieces import TokenTexts

MOST_SHOWN = 1 << 22  # log-probabilities of one request


@dataclass(frozen=True)
class Limits:
    """What one server allows. body: bytes. tokens: of an answer; None: as many as the context has. seconds: of a whole
    request, of a head and of a body to come, of a reader that takes nothing. connections: at once. requests: in flight,
    those that wait included. keys: one of which each request must bear; none: anybody may ask.
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


@dataclass(eq=False)
class Service:
    """One model that is served. name: as it is called. log: hears what happened, as fields; prompts: with the texts.

    decode: the way where a request names none; blocks: how, of block diffusion. local: only this machine can ask.
    approximations: for which answers may differ from those given alone, by name; none unless asked for.
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
    started: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.config = self.checkpoint.config
        self.texts = TokenTexts(self.tokenizer)

    def require_tokenizer(self, param: str) -> Tokenizer:
        """The tokenizer. Raises ApiError where there is none."""
        if self.tokenizer is None:
            raise bad(param, "the model has no tokenizer; give token ids", "no_tokenizer")
        return self.tokenizer

    def encode_plain(self, text: str, param: str, special: bool) -> list[int]:
        """Ids of a text, whatever they are. Raises ApiError."""
        tokenizer = self.require_tokenizer(param)
        try:
            return tokenizer.encode(text, special)
        except TritgoldError as error:
            raise api_errors.of(error, param) from None

    def encode(self, text: str, param: str, special: bool = True) -> list[int]:
        """Ids of a prompt, of which there must be one. Raises ApiError."""
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
        """Token ids that the model has. Raises ApiError."""
        for token in given:
            if not 0 <= token < self.config.vocab:
                shown = token if token.bit_length() < 64 else "an integer without end"
                raise bad(param, f"{shown} is not a token id, 0 to {self.config.vocab - 1}", "token-id")
        return given

    def budget(self, prompt: list[int], wanted: int | None, otherwise: int | None) -> int:
        """Tokens to be generated at most. Raises ApiError.

        wanted: asked for; -1: as many as there is room for; None: otherwise, and where that is None the room.
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
        """How the ``number``-th answer to a prompt is chosen. Raises ApiError."""
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
        """Tokens that end the text."""
        return (*(() if asked.ignore_eos else self.config.eos), *self.ids(asked.stop_token_ids, "stop_token_ids"))

    def check_shown(self, shown: int | None, tokens: int, param: str) -> None:
        """Refuse more log-probabilities than the vocabulary has, or than an answer may hold."""
        if shown is None:
            return
        if shown > self.config.vocab:
            raise bad(param, f"found {shown}, expected at most {self.config.vocab}, the vocabulary")
        if shown * tokens > MOST_SHOWN:
            raise bad(param, f"{shown} for each of {tokens} tokens is more than {MOST_SHOWN}: ask for fewer tokens")

    def check_model(self, asked: str | None) -> None:
        """Refuse a model that is not the one served; an empty name is any."""
        if asked and asked != self.name:
            raise ApiError(404, f"model: {asked[:80]!r} is not here, {self.name!r} is", "model", "model_not_found")

    def way(self, asked: Common) -> str:
        """How a request is decoded."""
        return asked.decode or self.decode
