"""Servers that misbehave: late, endless, not HTTP, or not there."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked_once import judge
from http_test_server import Handler, server
from next_token_rows import COUNT
from tritgold_command import call, parsed

from tritgold.errors import EngineError
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun


def refused_with(golden: GoldenRun, model: Path, handle: Callable[[Handler, dict[str, Any]], None]) -> EngineError:
    with server(handle) as address:
        engine = load_engine(address, model, golden.checkpoint, COUNT, 1)
        start = time.monotonic()
        with pytest.raises(EngineError) as refused:
            judge(golden, engine, "small")
        assert time.monotonic() - start < 2.5
    return refused.value


def test_a_status_is_said(golden: GoldenRun, model: Path) -> None:
    error = refused_with(golden, model, lambda r, _: r.send("no \x1b[2J such model", 404))
    assert error.kind == "engine-status"
    assert r"status 404: no \x1b[2J such model" in str(error)


def test_a_redirect_is_not_followed(golden: GoldenRun, model: Path) -> None:
    def away(request: Handler, _: dict[str, Any]) -> None:
        request.send_response(307)
        request.send_header("Location", "http://127.0.0.1:9/")
        request.send_header("Content-Length", "0")
        request.end_headers()

    assert "status 307" in str(refused_with(golden, model, away))


def test_a_slow_server_is_late(golden: GoldenRun, model: Path) -> None:
    assert refused_with(golden, model, lambda *_: time.sleep(3)).kind == "engine-timeout"


def drips(in_header: bool) -> Callable[[Handler, dict[str, Any]], None]:
    """A byte every tenth of a second: no single read is late."""

    def handle(request: Handler, _: dict[str, Any]) -> None:
        if not in_header:
            request.send_response(200)
            request.send_header("Content-Length", "1000")
            request.end_headers()
        for _byte in range(30):
            request.wfile.write(b"H")
            request.wfile.flush()
            time.sleep(0.1)

    return handle


@pytest.mark.parametrize("in_header", [True, False])
def test_a_server_that_drips_is_late(golden: GoldenRun, model: Path, in_header: bool) -> None:
    assert refused_with(golden, model, drips(in_header)).kind == "engine-timeout"


def test_an_endless_answer_is_cut(golden: GoldenRun, model: Path) -> None:
    def handle(request: Handler, _: dict[str, Any]) -> None:
        request.send_response(200)
        request.end_headers()
        for _block in range(1 << 14):
            request.wfile.write(b" " * (1 << 16))

    assert refused_with(golden, model, handle).kind == "engine-output-size"


@pytest.mark.parametrize(
    ("size", "kind"), [("-1", "engine-output-size"), ("-5", "engine-output-size"), ("x", "engine-http")]
)
def test_a_chunk_of_an_impossible_size_is_cut(golden: GoldenRun, model: Path, size: str, kind: str) -> None:
    """Python's own ``read`` takes all that comes for a chunk of -1 bytes, and raises ValueError for -5."""
    sent = [0]

    def handle(request: Handler, _: dict[str, Any]) -> None:
        request.wfile.write(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n".encode())
        for _block in range(1 << 12):
            request.wfile.write(b" " * (1 << 16))
            sent[0] += 1 << 16

    assert refused_with(golden, model, handle).kind == kind
    assert sent[0] < 1 << 25


def test_what_is_not_http_is_said(golden: GoldenRun, model: Path) -> None:
    def handle(request: Handler, _: dict[str, Any]) -> None:
        request.wfile.write(b"\x00\x01 not http\r\n\r\n")

    assert refused_with(golden, model, handle).kind == "engine-http"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:1",
        "http://",
        "http:127.0.0.1",
        "http://127.0.0.1:none",
        "http://127.0.0.1:99999",
        "http://user:secret@127.0.0.1:1",
        "http://127.0.0.1:1?logprobs=0",
        "http://127.0.0.1:1?logprobs=many",
        "http://127.0.0.1:1?other=1",
        "http://127.0.0.1:1?odd",
        "http://[::1",
    ],
)
def test_what_is_not_a_url_is_refused(golden: GoldenRun, model: Path, url: str) -> None:
    with pytest.raises(EngineError) as refused:
        load_engine(url, model, golden.checkpoint, COUNT)
    assert refused.value.kind == "engine-unknown"


def test_no_server_there_is_exit_code_3(model: Path) -> None:
    with server(lambda *_: None) as address:
        gone = address
    result = call("check", "--engine", gone, "--model", model, "--tokens", 3, "--json")
    assert (result.exit_code, parsed(result)["kind"]) == (3, "engine-http")
