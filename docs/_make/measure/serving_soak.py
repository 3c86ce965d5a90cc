"""``tritgold serve`` for as long as one likes, with clients of all kinds: is an answer ever wrong, does memory grow?

``python -m measure.serving_soak --seconds 3600 --backend reference --out docs/data/serve-soak.json``, once for each
backend; rows of earlier commands stay in the report.

The server is a process of its own, on a small seeded model. Its answers to a few hundred requests, greedy and drawn
with a seed, with stops, biases and several answers, are kept as it gives them alone; then several clients at once ask
them again in any order, whole or as streams, among clients that vanish, send half a request, malformed bodies or
prompts that are too long, or read slowly. Every minute they pause, and nothing may be held. ``mib``: the resident
memory of the server at each pause.

Only time that it ran counts: where others time something it may be stopped (SIGSTOP, clients and server together), so
clients and server have patience for an hour. --think: mean seconds that a client waits before each request, by which
it leaves the machine to others; what is measured is answers and memory, not the rate.
"""

import argparse
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure.report import lines
from tritgold.golden.seeded import Shape, write_seeded_model

SCHEMA = "tritgold.serve_soak/1"
SHAPE = Shape(seed=5, hidden=32, inter=48, layers=1, heads=2, kv_heads=1, context=300)
CLIENTS, REQUESTS, PAUSE = 6, 300, 60.0
NAPS = 60  # between two pauses
PATIENCE = 3600  # seconds: a client that gives up on a machine that others use tells nothing of the server
Asked = dict[str, Any]


@contextmanager
def served(backend: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """(port, process) of a server that is ended at the end; its exit status must then be 0."""
    with tempfile.TemporaryDirectory(prefix="tritgold-soak-") as folder:
        write_seeded_model(Path(folder), SHAPE)
        words = ["serve", folder, "--backend", backend, "--port", "0", "--max-sequences", "4", "--queue", "32"]
        words += ["--grace", "5", "--timeout", str(PATIENCE)]
        command = [sys.executable, "-m", "tritgold_conformance", *words]
        with (Path(folder) / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                yield _port(Path(folder) / "log", process), process
            finally:
                process.send_signal(signal.SIGTERM)
                status = process.wait(PATIENCE)
        if status:
            raise RuntimeError(f"the server ended with {status}")


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r'"url": "http://[^"]*:(\d+)"', log.read_text(encoding="utf-8")):
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the server does not listen: {log.read_text(encoding='utf-8')[-2000:]}")


def some_requests(count: int) -> list[Asked]:
    """Right requests: prompts that begin alike, up to two chunks long."""
    draw, found = random.Random(1), list[Asked]()
    for n in range(count):
        alike = [(11 * at) % 251 for at in range(draw.choice([0, 0, 20, 130, 150]))]
        prompt = alike + [draw.randrange(256) for _ in range(draw.randint(1, 30))]
        asked: Asked = {"prompt": prompt, "max_tokens": draw.randint(1, 24), "return_token_ids": True}
        asked |= {"temperature": 0} if draw.random() < 0.5 else {"temperature": 1, "seed": n, "top_k": 40}
        if draw.random() < 0.3:
            asked |= {"stop": [chr(draw.randint(97, 122))], "logit_bias": {str(draw.randint(97, 122)): 4}}
        if draw.random() < 0.2:
            asked |= {"n": 2, "frequency_penalty": 0.5}
        found.append(asked | {"ignore_eos": draw.random() < 0.5})
    return found


class Soak:
    """The clients of one server. counts: what happened, by kind; wrong: answers that differ from those given alone."""

    def __init__(self, port: int, requests: list[Asked], think: float = 0.0) -> None:
        self.port, self.requests, self.think = port, requests, think
        self.counts, self.wrong, self._lock = Counter[str](), list[Asked](), threading.Lock()
        self.expected = [self._whole(asked)[1] for asked in requests]
        self._going = threading.Event()

    def work(self, seconds: float, sample: float, process: subprocess.Popen[bytes]) -> list[float]:
        """Ask for so many seconds. Returns the server's resident MiB at each pause."""
        ends, memory, ran = threading.Event(), list[float](), 0.0
        self._going.set()
        idle = threading.Barrier(CLIENTS + 1)
        threads = [threading.Thread(target=self._client, args=(seed, ends, idle)) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while not ends.is_set():
            for _ in range(NAPS):  # a stop of all processes lengthens one nap, and is not counted
                time.sleep(min(sample, seconds) / NAPS)
            ran += sample
            if ran >= seconds:
                ends.set()
            self._going.clear()
            idle.wait(2 * PATIENCE)
            self._nothing_held()
            memory.append(resident(process.pid))
            self._going.set()
            idle.wait(2 * PATIENCE)
        for thread in threads:
            thread.join(PATIENCE)
        return memory

    def _client(self, seed: int, ends: threading.Event, idle: threading.Barrier) -> None:
        draw = random.Random(seed)
        ways = (self._ask, self._ask, self._stream, self._stream, self._vanish, self._half, self._malformed, self._long)
        while True:
            if not self._going.is_set():
                idle.wait(2 * PATIENCE)
                over = ends.is_set()  # asked inside the pause: after it the next one may have begun
                idle.wait(2 * PATIENCE)
                if over:
                    return
            if self.think:
                time.sleep(draw.expovariate(1 / self.think))
            way = draw.choice(ways)
            try:
                way(draw)
            except Exception as error:
                self._count(f"failed: {way.__name__.strip('_')}: {type(error).__name__}")

    def _nothing_held(self) -> None:
        """Raises RuntimeError where, ten seconds after the last client has gone, something is still held."""
        for _ in range(200):
            text = self._get("/metrics")
            names = ("kv_positions", "texts_running", "texts_waiting", "engine_restarts")
            held = {name: float(re.findall(rf"^tritgold_{name} (\S+)$", text, re.M)[0]) for name in names}
            if not any(held.values()):
                return
            time.sleep(0.05)
        raise RuntimeError(f"held without a client: {held}")

    def _get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def _post(self, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def _whole(self, asked: Asked) -> tuple[int, Any]:
        connection, answer = self._post(json.dumps(asked).encode())
        said = json.loads(answer.read())
        connection.close()
        return answer.status, [(c["token_ids"], c["text"], c["finish_reason"]) for c in said.get("choices", [])]

    def _ask(self, draw: random.Random) -> None:
        which = draw.randrange(len(self.requests))
        status, choices = self._whole(self.requests[which])
        self._compare(which, status, choices, "whole")

    def _stream(self, draw: random.Random) -> None:
        which, slowly = draw.randrange(len(self.requests)), draw.random() < 0.1
        connection, answer = self._post(json.dumps(self.requests[which] | {"stream": True}).encode())
        parts: dict[int, tuple[list[int], str, str | None]] = {}
        if answer.status == 200:
            for line in answer:
                if line.startswith(b"data: {"):
                    (choice,) = json.loads(line[6:])["choices"]
                    ids, text, _ = parts.get(choice["index"], ([], "", None))
                    said = ids + choice["token_ids"], text + choice["text"], choice["finish_reason"]
                    parts[choice["index"]] = said
                    time.sleep(0.01 * slowly)
        connection.close()
        self._compare(which, answer.status, [parts[n] for n in sorted(parts)], "streams")

    def _compare(self, which: int, status: int, choices: Any, kind: str) -> None:
        if status == 429:
            self._count("refused, 429")
        elif status == 200 and choices == self.expected[which]:
            self._count(f"right, {kind}")
        else:
            self._count("wrong")
            with self._lock:
                self.wrong.append({"asked": self.requests[which], "status": status, "choices": choices})

    def _vanish(self, draw: random.Random) -> None:
        asked = draw.choice(self.requests) | {"stream": True, "max_tokens": 60, "ignore_eos": True, "n": 1}
        connection, answer = self._post(json.dumps(asked).encode())
        for _ in range(draw.randint(0, 5)):
            answer.readline()
        answer.close()
        connection.close()
        self._count("vanished")

    def _half(self, draw: random.Random) -> None:
        body = json.dumps(draw.choice(self.requests)).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[: draw.randrange(len(body))])
        connection.close()
        self._count("half a request")

    def _malformed(self, draw: random.Random) -> None:
        body = bytearray(json.dumps(draw.choice(self.requests)).encode())
        for _ in range(draw.randint(1, 9)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        connection, answer = self._post(bytes(body))
        answer.read()
        connection.close()
        self._count(f"malformed, {answer.status}")

    def _long(self, draw: random.Random) -> None:
        connection, answer = self._post(json.dumps({"prompt": [1] * draw.randint(302, 9000)}).encode())
        answer.read()
        connection.close()
        self._count(f"too long, {answer.status}")

    def _count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1


def resident(process: int) -> float:
    """MiB of a process."""
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return round(int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024, 1)


def soak(
    backend: str, seconds: float, requests: int = REQUESTS, pause: float = PAUSE, think: float = 0.0
) -> dict[str, Any]:
    """A row of the report."""
    with served(backend) as (port, process):
        clients = Soak(port, some_requests(requests), think)
        memory = clients.work(seconds, pause, process)
    counts = dict(sorted(clients.counts.items()))
    return {"backend": backend, "seconds": seconds, "clients": CLIENTS, "think": think,
            "requests": sum(counts.values()), "counts": counts, "wrong": clients.wrong[:5], "pause": pause,
            "mib": memory}  # fmt: skip


def main() -> None:
    """Run one, and put its row into the report; exit status 1 where an answer was wrong or a client failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("reference", "xla"), required=True)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--think", type=float, default=0.0, help="mean seconds of a client before each request")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    known = json.loads(given.out.read_text(encoding="utf-8"))["rows"] if given.out.exists() else []
    row = soak(given.backend, given.seconds, think=given.think)
    rows = [*(one for one in known if one["backend"] != given.backend), row]
    given.out.write_text(lines({"schema": SCHEMA, "rows": rows}) + "\n", encoding="utf-8")
    sys.exit(any(kind.startswith(("wrong", "failed")) for kind in row["counts"]))


if __name__ == "__main__":
    main()
