"""The ASGI application: endpoints by path, and the guard before them."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tritgold_conformance.serving import llama_api, openai_api
from tritgold_conformance.serving.api_errors import ApiError
from tritgold_conformance.serving.guard import Guard
from tritgold_conformance.serving.service import Service

Endpoint = Callable[[Request, Service], Awaitable[Response]]

ENDPOINTS: dict[str, tuple[str, Endpoint]] = {
    "/v1/completions": ("POST", openai_api.completions),
    "/v1/chat/completions": ("POST", openai_api.chat),
    "/v1/models": ("GET", openai_api.models),
    "/completion": ("POST", llama_api.completion),
    "/props": ("GET", llama_api.props),
    "/tokenize": ("POST", llama_api.tokenize),
    "/detokenize": ("POST", llama_api.detokenize),
    "/health": ("GET", llama_api.health),
    "/metrics": ("GET", llama_api.metrics),
}


def application(service: Service) -> ASGIApp:
    """The server of one model. What an endpoint raises, the guard answers."""

    async def endpoints(scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path not in ENDPOINTS:
            raise ApiError(404, f"no such path; there are {', '.join(ENDPOINTS)}", code="not_found")
        wanted, endpoint = ENDPOINTS[path]
        if method != wanted:
            raise ApiError(405, f"{path} is for {wanted}", code="method_not_allowed")
        response = await endpoint(Request(scope, receive), service)
        await response(scope, receive, send)

    return Guard(endpoints, service, frozenset(ENDPOINTS))
