"""Errors in the form of OpenAI's API: an HTTP status, and an object that names the field."""

from typing import Any

from tritgold.errors import TritgoldError

# kind of a TritgoldError -> the field of a request that causes it
_FIELDS = {
    "token-id": "prompt",
    "no-tokens": "prompt",
    "context-length": "prompt",
    "mask-in-prompt": "prompt",
    "two-bos": "prompt",
    "logits-impossible": "logit_bias",
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
    """An error response. param: the wrong field. code: a short stable word. retry: seconds, for Retry-After."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    @property
    def type(self) -> str:
        """OpenAI's ``error.type`` for the status."""
        if self.status in (401, 403):
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> dict[str, Any]:
        """The JSON of the response."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def bad(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """Status 400: a wrong request. param: the field, which also begins the message."""
    return ApiError(400, f"{param}: {message}" if param else message, param, code)


def of(error: TritgoldError, param: str | None = None) -> ApiError:
    """The response for a TritgoldError: 400, or 500 if the model gave NaN or inf. It never names a file.

    If no token is possible, the request's biases ruled out all.
    """
    param = param or _FIELDS.get(error.kind) or (error.thing if error.kind == "sampling-option" else None)
    said = f"{error.message}: found {error.got}" if error.got is not None else error.message
    if error.expected is not None:
        said += f", expected {error.expected}"
    status = 500 if error.kind.endswith("non-finite") else 400
    code = "context_length_exceeded" if error.kind in ("context-length", "page-budget") else error.kind
    return ApiError(status, f"{param}: {said}" if param else said, param, code)


def stopping() -> ApiError:
    """Status 503: the server is stopping."""
    return ApiError(503, "the server is stopping", code="server_stopping", retry=10)
