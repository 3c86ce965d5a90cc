"""A server that cannot start, or that has lost its model, says why."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from served import running, smallest

from tritgold.errors import EngineError
from tritgold_conformance.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines; give --api-key-file FILE"),
        (("--host", "0.0.0.0", "--api-key-file", "EMPTY"), "holds no key"),
        (("--port", "70000"), "70000"),
        (("--backend", "xla", "--defect", "scale-never"), "needs --backend reference"),
        (("--defect", "scale-nevr"), "nearest: scale-never"),
        (("--defect", "eos-ignored"), "no fault of weights or arithmetic"),
        (("--kv-memory", "1", "--max-sequences", "1000"), "kv-memory"),
        (("--decode", "adaptive"), "no-diffusion"),
        (("--kv-cache", "a4_8"), "kv-"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "EMPTY").write_text("\n")
    words = tuple(str(tmp_path / word) if word == "EMPTY" else word for word in words)
    result = CliRunner().invoke(main, ["serve", str(smallest()), *words])
    assert result.exit_code in (2, 3), result.output
    assert says in " ".join(result.output.replace("│", " ").split())


def test_without_its_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tritgold_conformance.serving.server", raising=False)
    result = CliRunner().invoke(main, ["serve", str(smallest())])
    assert result.exit_code == 3
    assert "pip install 'tritgold[serve]'" in result.output


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(main, ["serve", str(smallest()), "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 3
    assert "[address]" in result.output


def test_a_server_that_has_lost_its_model_ends_with_the_reason() -> None:
    with running() as made:
        lost = EngineError("a process of this model is lost", kind="process-lost")
        made.service.core.lost = lost
        made.thread.join(10)
        assert not made.thread.is_alive()
        assert made.log[-1]["event"] == "stopping"


def test_the_command_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = EngineError("a process of this model is lost", kind="process-lost")

    def run(server: Any, sockets: list[socket.socket]) -> None:
        server._service.core.stop(0)
        server._service.core.lost = lost
        sockets[0].close()

    monkeypatch.setattr("tritgold_conformance.serving.server.Server.run", run)
    result = CliRunner().invoke(main, ["serve", str(smallest()), "--port", "0", "--grace", "0"])
    assert result.exit_code == 3
    assert "process-lost" in result.output
