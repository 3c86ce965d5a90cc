"""Clients with streams and whole answers under way when something dies: what each had, and how it was told."""

import http.client
import json
import threading
from typing import Any


class Client:
    """One request in a thread. tokens: the ids that came.

    told: ``done`` for a whole right end, ``error`` for one that the server says, ``broken`` for a connection that
    ends before the answer does; every HTTP client raises an error for that.
    """

    def __init__(self, port: int, body: dict[str, Any], stream: bool) -> None:
        self.tokens, self.told, self._stream = list[int](), "", stream
        self._port, self._body = port, json.dumps(body | {"stream": stream, "return_token_ids": True})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float = 300) -> "Client":
        """Until it has been told."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "a client waits for an answer that never comes"
        return self

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        try:
            connection.request("POST", "/v1/completions", self._body, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                self.told = self._read(answer)
        except (OSError, http.client.HTTPException):
            self.told = "broken"
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse) -> str:
        if not self._stream or answer.status != 200:
            said = json.loads(answer.read())
            if answer.status != 200:
                assert said["error"]["message"]
                return "error"
            self.tokens += said["choices"][0]["token_ids"]
            return "done"
        failed = False
        for line in answer:
            if line == b"data: [DONE]\n":
                return "error" if failed else "done"
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    failed = True
                    continue
                self.tokens += event["choices"][0]["token_ids"]
                failed |= event["choices"][0]["finish_reason"] == "abort"
        return "error" if failed else "broken"


def told_rightly(clients: list[Client], expected: list[list[int]], streams: list[bool]) -> list[str]:
    """How each was told. Fails for a wrong token, and for an answer that ends as if whole and is not."""
    for client, tokens, stream in zip(clients, expected, streams, strict=True):
        client.wait()
        assert client.tokens == tokens[: len(client.tokens)], "a wrong token"
        if client.told == "done":
            assert client.tokens == tokens, "cut short, and told as whole"
        elif not stream:
            assert client.tokens == []
    return [client.told for client in clients]
