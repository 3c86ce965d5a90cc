"""An HTTP server on this machine that answers as a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def server(handle: Callable[["Handler", dict[str, Any]], None]) -> Iterator[str]:
    """A server on this machine that answers POST by ``handle(request, body)``; its address."""
    made = type("Made", (Handler,), {"handle_body": staticmethod(handle)})
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    handle_body: Callable[["Handler", dict[str, Any]], None]

    def do_GET(self) -> None:
        self.send(json.dumps({"data": [{"id": "small"}]}) if self.path == "/v1/models" else "", 200)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            type(self).handle_body(self, body)
        except (BrokenPipeError, ConnectionResetError):
            return  # the judge has hung up

    def send(self, text: str | bytes, status: int = 200) -> None:
        raw = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Not to stderr."""
