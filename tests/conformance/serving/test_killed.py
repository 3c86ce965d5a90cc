"""An engine or a server that dies with answers under way: all that were accepted are told, and no token is wrong."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_engine import Counting
from measure.serving_soak import _port
from served import Running, alone, running, smallest
from streaming_clients import Client, told_rightly

from tritgold.decode.sampling import Sampling


class Wide(Counting):
    """Counting with as many tokens as the model has that is served."""

    def prefill(self, tokens: list[int], sequence: int = 0) -> np.ndarray:
        return np.pad(super().prefill(tokens, sequence), ((0, 0), (0, 162)))


PROMPTS, TOKENS = [(5, 6), (7, 8, 9), (5, 6, 1), (30,), (31, 2), (5,)], 40
ASKED = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
STREAMS = [True, True, True, True, False, False]


def clients(port: int, begun: int = 4) -> list[Client]:
    """Four streams and two whole answers; so many streams have begun."""
    pairs = zip(PROMPTS, STREAMS, strict=True)
    made = [Client(port, {**ASKED, "prompt": prompt}, stream) for prompt, stream in pairs]
    until = time.monotonic() + 60
    while sum(bool(client.tokens) for client in made[:4]) < begun:
        assert time.monotonic() < until
        time.sleep(0.002)
    return made


def expected() -> list[list[int]]:
    return [alone(prompt, TOKENS, Sampling(), ())[0] for prompt in PROMPTS]


def slowly(server: Running, seconds: float = 0.02) -> None:
    """Each pass takes at least so long, so that answers are under way for a while."""
    step = server.service.core.model.step

    def slow() -> Any:
        time.sleep(seconds)
        return step()

    server.service.core.model.step = slow  # type: ignore[method-assign]


@pytest.mark.parametrize("backend", ["reference", "xla"])
def test_an_engine_that_dies_with_answers_under_way(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With xla its scheduler, over an engine without arithmetic, which needs no compiling."""
    monkeypatch.setattr("tritgold_conformance.serving.served_models.open_engine", lambda *_, **__: Wide(6))
    with running("--backend", backend, "--max-sequences", "6") as server:
        asked = [{**ASKED, "prompt": prompt, "return_token_ids": True} for prompt in PROMPTS]
        right = [server.post("/v1/completions", **one)["choices"][0]["token_ids"] for one in asked]
        assert backend == "xla" or right == expected()
        slowly(server)
        under_way = clients(server.port)

        def dies() -> Any:
            raise MemoryError("the engine is dead")

        server.service.core.model.step = dies  # type: ignore[method-assign]
        assert told_rightly(under_way, right, STREAMS) == ["error"] * 6
        assert (server.service.core.crashes, server.service.core.held) == (1, 0)
        again = clients(server.port)
        assert told_rightly(again, right, STREAMS) == ["done"] * 6, "the engine was made again"


def test_a_server_that_is_killed_with_answers_under_way(tmp_path: Path) -> None:
    """kill -9 of a server's process, which reads one text and holds five: no stream has its [DONE], no answer comes."""
    words = ["serve", str(smallest()), "--port", "0", "--max-sequences", "1"]
    command = [sys.executable, "-m", "tritgold_conformance", *words]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            under_way = clients(_port(tmp_path / "log", process), 1)
        finally:
            process.kill()
        told = told_rightly(under_way, expected(), STREAMS)
    assert set(told) <= {"broken", "done"}
    assert "broken" in told


def test_a_client_sees_a_wrong_token_and_a_cut_answer() -> None:
    """The check itself can fail."""
    with running() as server:
        right = expected()
        one = clients(server.port)
        with pytest.raises(AssertionError, match="a wrong token"):
            told_rightly(one, [[0, *tokens[1:]] for tokens in right], STREAMS)
        with pytest.raises(AssertionError, match="cut short"):
            told_rightly(one, [[*tokens, 1] for tokens in right], STREAMS)
