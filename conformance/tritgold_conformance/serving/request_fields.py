"""The fields of each endpoint's requests, with their types and bounds.

An unknown field is an error that names it; it is never ignored silently. Fields of other servers that change no answer
are ignored; fields that would change the answer are accepted only with the value at which they do not.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from tritgold.options import DECODE
from tritgold_conformance.serving.api_errors import ApiError, bad

MOST = 1 << 31
Ids = list[Annotated[int, Meta(ge=0, le=MOST)]]
_Count = Annotated[int, Meta(ge=0, le=MOST)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Repetition = Annotated[float, Meta(ge=1e-3, le=1e3)]  # less would make a logit infinite
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Seed = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]  # -1, as in llama.cpp: a random one
_Stops = str | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)] | None
_Budget = Annotated[int, Meta(ge=-1, le=MOST)]  # -1, as in llama.cpp: as many as there is room for
_Choices = Annotated[int, Meta(ge=1, le=128)]


class StreamOptions(Struct, forbid_unknown_fields=True):
    """include_usage: the last event has the numbers of tokens."""

    include_usage: bool = False
    include_obfuscation: bool = False


class Common(Struct, kw_only=True):
    """Fields of every endpoint that generates. None: the server's default.

    decode, threshold, block_size, sub_block, max_passes: of block diffusion, as in ``tritgold run``.
    """

    temperature: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MOST)] | None = None
    min_p: _Share | None = None
    repetition_penalty: _Repetition | None = None
    repeat_penalty: _Repetition | None = None  # llama.cpp's name of repetition_penalty
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    seed: _Seed | None = None
    stop: _Stops = None
    stop_token_ids: Ids = []
    ignore_eos: bool = False
    stream: bool | None = None
    decode: str | None = None
    threshold: _Share | None = None
    block_size: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    sub_block: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    max_passes: Annotated[int, Meta(ge=1, le=MOST)] | None = None


class OpenAiCommon(Common, kw_only=True):
    """Fields of both of OpenAI's endpoints."""

    model: str | None = None
    n: _Choices | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stream_options: StreamOptions | None = None
    return_tokens_as_token_ids: bool = False
    return_token_ids: bool = False


class Completion(OpenAiCommon, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[Any]
    max_tokens: _Budget | None = None
    logprobs: _Count | None = None
    echo: bool | None = None


class Message(Struct):
    """A message of a chat; the chat template may refuse a role."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None


class Chat(OpenAiCommon, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_tokens: _Budget | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    logprobs: bool | None = None
    top_logprobs: _Count | None = None
    add_generation_prompt: bool = True


class LlamaCompletion(Common, kw_only=True):
    """POST /completion, as llama.cpp's server has it."""

    prompt: str | list[Any]
    n_predict: Annotated[int, Meta(ge=-1, le=MOST)] = -1
    n_probs: _Count = 0
    logit_bias: list[Any] | dict[str, Any] | None = None
    return_tokens: bool = False
    cache_prompt: bool = True


class Tokenize(Struct, kw_only=True):
    """POST /tokenize: llama.cpp's ``content``, or vLLM's ``prompt`` or ``messages``."""

    content: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    with_pieces: bool = False
    model: str | None = None


class Detokenize(Struct, kw_only=True):
    """POST /detokenize."""

    tokens: Ids
    model: str | None = None


# Fields that change no answer, and are ignored.
_IGNORED = {
    "model", "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
    "parallel_tool_calls",
    "id_slot", "timings_per_token", "slot_id", "cache_prompt", "return_progress", "t_max_predict_ms",
    "reasoning_format", "parse_special", "response_fields", "n_discard", "verbosity",
}  # fmt: skip
# Fields that would change the answer, and the values at which they do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,), "suffix": ("",), "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "use_beam_search": (False,),
    "length_penalty": (1,), "min_tokens": (0,), "skip_special_tokens": (True,), "add_special_tokens": (True,),
    "spaces_between_special_tokens": (True,), "include_stop_str_in_output": (False,), "echo": (False,),
    "continue_final_message": (False,), "typical_p": (1,), "typ_p": (1,), "tfs_z": (1,), "mirostat": (0,),
    "dynatemp_range": (0,), "xtc_probability": (0,), "dry_multiplier": (0,), "top_n_sigma": (-1, 0), "min_keep": (0,),
    "n_keep": (0, -1), "n_indent": (0,), "post_sampling_probs": (False,), "grammar": ("",), "json_schema": ({},),
    "lora": ([],), "image_data": ([],), "reasoning_effort": ("none",),
}  # fmt: skip
# Fields without effect while the fields above have these values.
_IDLE = {
    "mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "dry_base", "dry_allowed_length",
    "dry_penalty_last_n", "dry_sequence_breakers", "repeat_last_n", "penalize_nl",
}  # fmt: skip

# llama.cpp's chain of samplers, by names or by letters: without one of these, its parameter would have no effect.
_SAMPLERS = {"top_k": "k", "top_p": "p", "min_p": "m", "temperature": "t"}

S = TypeVar("S", bound=Struct)
_AT = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)


def read(body: bytes, schema: type[S]) -> S:
    """A request from its JSON. Raises ApiError 400, which names the field."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ApiError(400, f"the body is not JSON: {_printed(error)}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is not a JSON object", code="invalid_json")
    known = {field.encode_name for field in msgspec.structs.fields(schema)}
    kept = {name: value for name, value in found.items() if name in known or not _passed_over(name, value)}
    if unknown := [name for name in kept if name not in known]:
        raise bad(_short(unknown[0]), "no such field", "unknown_parameter")
    if isinstance(kept.get("decode"), str) and kept["decode"] not in DECODE:
        raise bad("decode", f"no such decoder; expected one of {', '.join(DECODE)}")
    messages = kept.get("messages")
    for n, message in enumerate(messages if isinstance(messages, list) else []):
        _check_message(f"messages[{n}]", message)
    try:
        return msgspec.convert(kept, schema)
    except (msgspec.ValidationError, RecursionError) as error:
        said, at = _AT.match(str(error)).groups()  # type: ignore[union-attr]
        missing = re.search(r"missing required field `(\w+)`", said)
        where = ".".join(filter(None, (at, missing[1] if missing else None)))
        raise bad(_short(where) or None, said, "missing_parameter" if missing else "invalid_value") from None


def _check_message(where: str, message: Any) -> None:
    """Raises ApiError for a field that the template would not see; one that says nothing, as ``null``, is ignored."""
    if isinstance(message, dict):
        for name in [name for name, value in message.items() if value and name not in Message.__struct_fields__]:
            raise bad(f"{where}.{_short(name)}", "is not supported", "unsupported_parameter")


def _passed_over(name: str, value: Any) -> bool:
    """Whether a field of another server can be ignored. Raises ApiError if its value would change the answer."""
    if name in _IGNORED or name in _IDLE:
        return True
    if name == "samplers":
        needed = _SAMPLERS.values() if isinstance(value, str) else _SAMPLERS
        if value is not None and not (isinstance(value, str | list) and all(one in value for one in needed)):
            raise bad(name, f"expected {', '.join(_SAMPLERS)} among them, or nothing", "unsupported_parameter")
        return True
    if name not in _NEUTRAL:
        return False
    if value is not None and value not in _NEUTRAL[name]:
        expected = " or ".join(repr(one) for one in _NEUTRAL[name])
        raise bad(name, f"is not supported; expected {expected}, or nothing", "unsupported_parameter")
    return True


def _short(text: str) -> str:
    shown = text if len(text) <= 80 else text[:80] + "..."
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def _printed(error: Exception) -> str:
    return _short(str(error)) if not isinstance(error, RecursionError) else "nested too deep"


def biases(given: Mapping[str, float] | None, vocab: int) -> dict[int, float]:
    """OpenAI's logit_bias, by id. Raises ApiError for a key that is not the id of a token."""
    return {_token_id(name, vocab): value for name, value in (given or {}).items()}


def llama_biases(given: list[Any] | dict[str, Any] | None, vocab: int) -> dict[int, float]:
    """llama.cpp's logit_bias, by id: pairs [id, number or false]; false, which is -inf, bans the token."""
    found: dict[int, float] = {}
    for pair in given.items() if isinstance(given, dict) else given or []:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise bad("logit_bias", "expected pairs [id, number or false]")
        token, value = _token_id(pair[0], vocab), pair[1]
        if value is not False and (type(value) not in (int, float) or not abs(value) <= 1e6):
            raise bad("logit_bias", "expected a number, or false, for each id")
        found[token] = float("-inf") if value is False else float(value)
    return found


def _token_id(given: Any, vocab: int) -> int:
    """An id from an integer or its decimal digits."""
    token = int(given) if isinstance(given, str) and re.fullmatch("[0-9]{1,9}", given) else given
    if type(token) is not int or not 0 <= token < vocab:
        raise bad("logit_bias", f"{_short(str(given))!r} is not a token id, 0 to {vocab - 1}")
    return token
