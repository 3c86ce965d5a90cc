"""A server and its clients: keys, limits, malformed bodies, clients that vanish or read nothing, a full queue."""

import http.client
import json
import os
import random
import socket
import string
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from served import Running, alone, running

from tritgold.decode.sampling import GREEDY

MALFORMED = int(os.environ.get("TRITGOLD_SERVED_MALFORMED", "2000"))  # 10,000 have been sent
FIELDS = [
    "prompt", "max_tokens", "temperature", "top_p", "top_k", "n", "stop", "logit_bias", "seed", "stream_options",
    "logprobs", "echo", "model", "messages", "tokens", "n_probs", "decode", "min_p", "stop_token_ids",
]  # fmt: skip
SLOW = 0.02  # seconds that a pass takes at least, where a test says so


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--max-sequences", "2", "--queue", "2", "--max-body", "1") as made:
        yield made


@pytest.fixture
def slowly(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    model = server.service.core.model
    step = model.step
    monkeypatch.setattr(model, "step", lambda: time.sleep(SLOW) or step())


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it has not become so"
        time.sleep(0.005)


def raw(server: Running, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(data)
    return connection


def post(body: dict[str, Any], path: str = "/v1/completions", more: str = "") -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


def right(server: Running) -> None:
    said = server.post("/v1/completions", prompt=[5, 6, 7], max_tokens=4, temperature=0, return_token_ids=True)
    assert said["choices"][0]["token_ids"] == alone((5, 6, 7), 4, GREEDY, None)[0]


LONG = {"prompt": [5, 6, 7], "max_tokens": 60, "temperature": 0, "ignore_eos": True}


@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_frees_its_place(server: Running, stream: bool) -> None:
    gone = [raw(server, post(LONG | {"stream": stream})) for _ in range(4)]
    until(lambda: server.service.core.held == 4)
    for connection in gone:
        connection.close()
    started = time.monotonic()
    until(lambda: server.service.core.held == 0)
    assert time.monotonic() - started < 30 * SLOW, "no text was written to its end"
    right(server)
    assert server.service.core.model.positions_in_use == 0


@pytest.mark.usefixtures("slowly")
def test_a_full_queue_says_when_to_come_again(server: Running) -> None:
    held = [raw(server, post(LONG | {"stream": True})) for _ in range(4)]
    until(lambda: server.service.core.held == 4)
    status, said, headers = server.ask("POST", "/v1/completions", LONG)
    assert (status, said["error"]["code"], said["error"]["type"]) == (429, "queue_full", "rate_limit_error")
    assert 1 <= int(headers["retry-after"]) <= 60
    assert server.ask("GET", "/health")[0] == 200
    for connection in held:
        connection.close()
    until(lambda: server.service.core.held == 0)
    right(server)


def test_a_reader_that_reads_nothing_is_left(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = server.service.limits
    monkeypatch.setattr(server.service, "limits", type(limits)(**{**vars(limits), "write_seconds": 0.3}))
    body = LONG | {"stream": True, "logprobs": 259, "n": 4}
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(post(body))
    until(lambda: server.service.core.held > 0)
    until(lambda: server.service.core.held == 0)
    right(server)
    connection.close()


def test_half_a_request_holds_nothing(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = server.service.limits
    monkeypatch.setattr(server.service, "limits", type(limits)(**{**vars(limits), "body_seconds": 0.2}))
    with raw(server, post(LONG)[:-9]) as half:
        assert b" 408 " in half.recv(4096).split(b"\r\n")[0]
    for data in (b"POST /v1/comp", post(LONG)[:60], post(LONG, more="Expect: 100-continue\r\n")[:-20]):
        raw(server, data).close()
    right(server)


def test_a_head_that_comes_byte_by_byte_is_ended(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = server.service.limits
    monkeypatch.setattr(server.service, "limits", type(limits)(**{**vars(limits), "head_seconds": 0.3}))
    with raw(server, b"") as silent, raw(server, b"") as slow, raw(server, b"GET /health HTTP/1.1\r\n") as half:
        started = time.monotonic()
        with suppress(OSError):
            for byte in b"GET /health HTTP/1.1\r\nX-Slow: " + b"y" * 99:
                slow.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - started < 2, "each byte would begin the time again"
        for connection in (silent, slow, half):
            with suppress(ConnectionResetError):
                assert connection.recv(4096).split(b"\r\n")[0] in (b"HTTP/1.1 408 Request Timeout", b"")
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    for pause in (0.4, 0.0):
        kept.request("GET", "/health")
        assert kept.getresponse().read() == b'{"status":"ok"}', "one that is kept open is not concerned"
        time.sleep(pause)
    kept.sock.sendall(b"GET /health HT")
    assert b" 408 " in kept.sock.recv(4096).split(b"\r\n")[0]
    kept.close()
    right(server)


def test_bodies_that_are_too_large_are_refused_before_they_are_read(server: Running) -> None:
    status, said, _ = server.ask("POST", "/v1/completions", b" " * ((1 << 20) + 1))
    assert (status, said["error"]["code"]) == (413, "body_too_large")
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n") as chunked:
        for _ in range(17):
            chunked.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        assert b" 413 " in chunked.recv(4096).split(b"\r\n")[0]


def malformed(draw: random.Random) -> bytes:
    """A right body with something wrong, or no body at all."""
    value: Any = draw.choice(
        [
            None,
            True,
            -1,
            1e400,
            10**40,
            "x" * 50,
            "\ud800",
            [],
            [[]],
            [None],
            {},
            {"a": []},
            [1.5],
            ["a", 1],
            -0.0,
            "\0",
        ]
    )
    body: dict[str, Any] = {"prompt": [5, 6], "max_tokens": 1, "temperature": 0}
    body[draw.choice([*FIELDS, "".join(draw.choices(string.printable, k=5))])] = value
    text = json.dumps(body).encode()
    kind = draw.randrange(5)
    if kind == 0:
        return text[: draw.randrange(len(text))]
    if kind == 1:
        at = draw.randrange(len(text))
        return text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]
    if kind == 2:
        return draw.choice([b"", b"[" * 9000, b"null", b"\xff\xfe", b'{"prompt":' * 900, draw.randbytes(30), b"{}"])
    return text


def test_malformed_bodies_are_answered_in_one_form_and_change_nothing(server: Running) -> None:
    draw = random.Random(11)
    paths = ["/v1/completions", "/v1/chat/completions", "/completion", "/tokenize", "/detokenize"]
    statuses = set()
    connection = None
    for _ in range(MALFORMED // 20):
        connection = raw(server, b"")
        for _ in range(20):  # one connection, one after the other
            body = malformed(draw)
            head = f"POST {draw.choice(paths)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = b""
            while b"\r\n\r\n" not in answer:
                piece = connection.recv(65536)
                assert piece, body
                answer += piece
            head_, _, rest = answer.partition(b"\r\n\r\n")
            length = int(
                next(line.split(b":")[1] for line in head_.split(b"\r\n") if line.startswith(b"content-length"))
            )
            while len(rest) < length:
                rest += connection.recv(65536)
            status = int(head_.split()[1])
            statuses.add(status)
            assert status in (200, 400, 404), (body, rest)
            if status != 200:
                assert set(json.loads(rest)["error"]) == {"message", "type", "param", "code"}
        connection.close()
    assert statuses >= {200, 400}
    assert server.service.core.held == 0
    assert server.service.core.crashes == 0
    right(server)


def test_more_connections_are_told_to_come_again() -> None:
    with running("--connections", "2") as few:
        with raw(few, b""), raw(few, b""):
            until(lambda: len(few.server.server_state.connections) == 2)
            status, said, headers = few.ask("POST", "/v1/completions", LONG)
            assert (status, said["error"]["code"], headers["retry-after"]) == (503, "too_many_connections", "1")
            assert headers["connection"] == "close"
            assert few.ask("GET", "/health")[0] == 200
        until(lambda: not few.server.server_state.connections)
        right(few)


def test_what_no_client_sends(server: Running) -> None:
    for data in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"a" * 70000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        connection = raw(server, data)
        connection.settimeout(5)
        answer = connection.recv(4096)
        assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
        connection.close()
    assert server.ask("GET", "/no/such")[0] == 404
    assert server.ask("GET", "/v1/completions")[0] == 405
    assert server.ask("GET", "/../../etc/passwd")[0] == 404
    right(server)


def test_other_sites_and_their_forms_are_refused(server: Running) -> None:
    """A page that a browser shows cannot ask: neither by a form, nor by a name that leads to this machine."""
    assert server.ask("GET", "/v1/models", None, Host="evil.example:80")[0] == 403
    assert server.ask("GET", "/v1/models", None, Host=f"[::1]:{server.port}")[0] == 200
    body = json.dumps({"prompt": "a"}).encode()
    status, said, headers = server.ask("POST", "/v1/completions", body, **{"Content-Type": "text/plain"})
    assert (status, said["error"]["code"]) == (415, "content_type")
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_log_has_no_texts_unless_asked(server: Running) -> None:
    def lines() -> list[Any]:
        """An answer comes before its line: those of earlier requests may still be on their way."""
        return [line for line in server.log if line.get("prompt_tokens") == 13]

    server.log.clear()
    server.post("/v1/completions", prompt="secret words", max_tokens=2, temperature=0, ignore_eos=True)
    until(lambda: bool(lines()))
    (line,) = lines()
    assert (line["event"], line["path"], line["status"], line["prompt_tokens"]) == (
        "request",
        "/v1/completions",
        200,
        13,
    )
    assert line["generated_tokens"] == 2
    assert "secret" not in json.dumps(server.log)
    server.service.prompts = True
    server.post("/v1/completions", prompt="secret words", max_tokens=2, temperature=0, ignore_eos=True)
    server.service.prompts = False
    until(lambda: len(lines()) == 2)
    assert lines()[1]["prompts"] == [[256, *b"secret words"]]


def test_a_request_that_takes_too_long_is_told(server: Running, monkeypatch: pytest.MonkeyPatch, slowly: None) -> None:
    limits = server.service.limits
    monkeypatch.setattr(server.service, "limits", type(limits)(**{**vars(limits), "seconds": 0.2}))
    status, said, _ = server.ask("POST", "/v1/completions", LONG)
    assert (status, said["error"]["code"]) == (504, "timeout")
    _, text, _ = server.ask("POST", "/v1/completions", LONG | {"stream": True})
    assert '"timeout"' in text.split("\n\n")[-2]
    assert "[DONE]" not in text
    until(lambda: server.service.core.held == 0)


def test_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\nanother\n\n")
    with running("--api-key-file", str(keys)) as locked:
        assert locked.ask("GET", "/health")[0] == 200
        status, said, headers = locked.ask("GET", "/v1/models")
        assert (status, said["error"]["type"], headers["www-authenticate"]) == (401, "authentication_error", "Bearer")
        assert locked.ask("GET", "/v1/models", None, Authorization="Bearer third")[0] == 401
        assert locked.ask("GET", "/v1/models", None, Authorization="Basic first")[0] == 401
        assert locked.ask("GET", "/v1/models", None, Authorization="Bearer another")[0] == 200
        assert "another" not in json.dumps(locked.log)


def test_the_end_lets_texts_end_or_tells_them() -> None:
    for grace, finish in ((20.0, "length"), (0.0, "abort")):
        with running("--max-sequences", "1", grace=grace) as ending:
            model = ending.service.core.model
            step = model.step
            model.step = lambda step=step: time.sleep(SLOW) or step()  # type: ignore[method-assign]
            answers: list[tuple[int, Any]] = []

            def ask(stream: bool, ending: Running = ending, answers: list[tuple[int, Any]] = answers) -> None:
                answers.append(ending.ask("POST", "/v1/completions", LONG | {"stream": stream, "max_tokens": 25})[:2])

            threads = [threading.Thread(target=ask, args=(stream,)) for stream in (True, False)]
            for thread in threads:
                thread.start()
            until(lambda: ending.service.core.held == 2)
            ending.server.stop()
            for thread in threads:
                thread.join(20)
            (streamed,) = [text for _, text in answers if isinstance(text, str)]
            ((status, plain),) = [answer for answer in answers if not isinstance(answer[1], str)]
            assert f'"finish_reason":"{finish}"' in streamed
            if finish == "length":
                assert (status, plain["choices"][0]["finish_reason"], "[DONE]" in streamed) == (200, "length", True)
            else:
                assert (status, plain["error"]["code"]) == (503, "server_stopping")
                assert "server_stopping" in streamed
                assert "[DONE]" not in streamed
