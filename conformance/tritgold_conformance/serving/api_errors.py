"""Errors as OpenAI's API has them: a status, and an object that names the field."""

from typing import Any

from tritgold.errors import TritgoldError

# Of errors that tritgold raises, by kind: which field of a request they blame.
_FIELDS = {
    "token-id": "prompt",
    "no-tokens": "prompt",
    "context-length": "prompt",
    "mask-in-prompt": "prompt",
    "two-bos": "prompt",
    "text": "prompt",
    "max-tokens": "max_tokens",
    "page-budget": "max_tokens",
    "unknown-preset": "decode",
    "no-diffusion": "decode",
    "threshold": "threshold",
    "block": "block_size",
    "sub-block": "sub_block",
    "max-passes": "max_passes",
}


class ApiError(Exception):
    """What a client is told. param: the field at fault. code: a short stable word. retry: seconds, for Retry-After."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    @property
    def type(self) -> str:
        """OpenAI's kinds of error."""
        if self.status in (401, 403):
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> dict[str, Any]:
        """The answer."""
        said = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": said}


def bad(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """A request that is wrong; param: where."""
    return ApiError(400, f"{param}: {message}" if param else message, param, code)


def of(error: TritgoldError, param: str | None = None) -> ApiError:
    """An error of ours about a request. Files are not named: a client has no business with them."""
    param = param or _FIELDS.get(error.kind) or (error.thing if error.kind == "sampling-option" else None)
    said = f"{error.message}: found {error.got}" if error.got is not None else error.message
    if error.expected is not None:
        said += f", expected {error.expected}"
    status = 500 if error.kind.endswith(("non-finite", "impossible")) else 400
    code = "context_length_exceeded" if error.kind in ("context-length", "page-budget") else error.kind
    return ApiError(status, f"{param}: {said}" if param else said, param, code)


def stopping() -> ApiError:
    """The server takes no more."""
    return ApiError(503, "the server is stopping", code="server_stopping", retry=10)
