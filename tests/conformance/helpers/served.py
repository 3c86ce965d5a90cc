"""The smallest seeded model in the server's core, and the texts that it gives without a server."""

import http.client
import json
import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.decode.autoregressive import generate, reference_logits
from tritgold.decode.sampling import Sampling
from tritgold.decode.serving_options import Request
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.commands.open_service import open_service
from tritgold_conformance.commands.serve import serve
from tritgold_conformance.commands.server_config import load
from tritgold_conformance.serving.choosing import Chooser, Choosing
from tritgold_conformance.serving.core import Core, Event, Job
from tritgold_conformance.serving.server import Server, listening
from tritgold_conformance.serving.service import Service

SMALLEST = Shape(seed=5, hidden=32, inter=48, layers=1, heads=2, kv_heads=1, context=64)
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@cache
def smallest() -> Path:
    """The folder of the model, which has a chat template."""
    folder = Path(mkdtemp(prefix="tritgold-served-"))
    write_seeded_model(folder, SMALLEST)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@cache
def opened() -> Checkpoint:
    return open_checkpoint(smallest())


@cache
def alone(
    prompt: tuple[int, ...], count: int, sampling: Sampling, stop: tuple[int, ...] | None
) -> tuple[list[int], str]:
    """(tokens, reason) of ``generate``, which uses no scheduler."""
    config = opened().config
    logits = reference_logits(opened().weights, config, config.context)
    steps = list(generate(list(prompt), config, logits, count, sampling, stop))
    return [step.token for step in steps], str(steps[-1].reason)


def random_request(draw: random.Random, longest: int = 24) -> Request:
    """A request: prompts share beginnings; greedy or seeded; with its own stop tokens or the model's."""
    beginning = [(7 * n) % 251 for n in range(draw.choice([0, 0, 9, 17, 20]))]
    prompt = (*beginning, *(draw.randrange(256) for _ in range(draw.randint(1, longest - len(beginning)))))
    sampling = draw.choice([Sampling(), Sampling(1.0, seed=draw.randrange(3)), Sampling(0.8, 40, 0.9, 1.2, 7)])
    stop = draw.choice([None, (), tuple(range(0, 259, 17))])
    return Request(prompt, draw.randint(1, 12), sampling, stop)


class Heard:
    """A job, and the events that it received."""

    def __init__(self, request: Request, choosing: Choosing | None = None, **more: Any) -> None:
        self.chooser = Chooser(choosing or Choosing(request.sampling), opened().config, request.prompt)
        asked = Request(request.prompt, request.max_tokens, request.sampling, request.stop, self.chooser.choose, **more)
        self.events: list[Event] = []
        self.ended = threading.Event()
        self.job = Job(asked, self.chooser, self.hear)

    def hear(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in ("ended", "refused"):
            self.ended.set()

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if event.kind == "token"]

    def wait(self, core: Core, seconds: float = 20) -> "Heard":
        assert self.ended.wait(seconds), (self.events, core.held)
        return self


class Running:
    """A server in a thread of this process. log: its log entries."""

    def __init__(self, service: Service, grace: float) -> None:
        self.service, self.log = service, list[dict[str, Any]]()
        service.log = lambda fields: self.log.append(dict(fields))
        self._socket = listening("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = Server(service, grace)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self.thread.start()

    def ask(
        self, method: str, path: str, body: Any = None, timeout: float = 20, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """(status, JSON or text, headers)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if raw is not None else {}
        with closing(connection):
            connection.request(method, path, raw, kind | headers)
            answer = connection.getresponse()
            text, found = answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
        is_json = found.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text, found

    def post(self, path: str, **body: Any) -> Any:
        """The answer to a valid request."""
        status, found, _ = self.ask("POST", path, body)
        assert status == 200, found
        return found

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.service.core.join(5)


@contextmanager
def running(*words: str, model: Path | None = None, grace: float = 0.0) -> Iterator[Running]:
    """``tritgold serve`` with these options, at a free port."""
    path = model or smallest()
    given = serve.make_context("serve", [str(path), *words]).params
    config = None if given["config_file"] is None else load(given["config_file"])
    service = open_service(open_checkpoint(path), "smallest", config, given)
    made = Running(service, grace)
    try:
        yield made
    finally:
        made.stop()
