"""``measure.serving_load`` at its smallest, our own server as its own peer, by a command that a user gives."""

import sys
from pathlib import Path
from typing import Any

import pytest
from measure import serving_load
from measure.serving_load import Sizes, commands, crowd, report, started
from served import running

from tritgold_conformance.bench.shapes import ModelShape

SMALL = ModelShape("small", 1, 256, 256, 2, 1, 128, 2100, context=128, activation="silu")
SIZES = Sizes(SMALL, (2, 9), (9,), slots=1, prompt=4, tokens=3, own=("--queue", "2"))
PEER = "PYTHON -W ignore -m tritgold_conformance serve {model} --port {port} --queue 40 --tokenizer TOKENIZER"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("load")
    peer = PEER.replace("PYTHON", sys.executable).replace("TOKENIZER", str(folder / "tokenizer.json"))
    return report(SIZES, folder, {"twin": peer})


def test_a_crowd_is_refused_with_a_time_to_come_again(found: dict[str, Any]) -> None:
    rows = {(row["server"], row["clients"]): row for row in found["refusing"]}
    few, many, twin = rows["tritgold serve", 2], rows["tritgold serve", 9], rows["twin", 9]
    assert (few["answered"], few["refused"], few["retry_after"], few["refused_after"]) == (2, {}, [], None)
    assert many["answered"] + many["refused"]["429"] == 9
    assert many["answered"] >= 3, "one is read and two wait"
    assert many["retry_after"]
    assert many["refused_after"] > 0
    assert many["failed"] == {}
    assert (twin["answered"], twin["refused"]) == (9, {}), "a longer queue holds them"


def test_answers_that_break_off_are_counted() -> None:
    with running("--max-tokens", "2") as server:
        row = crowd(SIZES, server.port, 2, 1)
    assert row["answered"] == 0
    assert sum(row["refused"].values()) + sum(row["failed"].values()) == 2


def test_commands_of_others(tmp_path: Path) -> None:
    made = commands(SIZES, tmp_path, {"a b": "'/my servers/x' -m {model} --port {port}"})
    (model,) = tmp_path.glob("small-*.gguf")
    assert made["a b"] == ["/my servers/x", "-m", str(model), "--port", "{port}"]


def test_llama_server_is_such_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dict[str, str]()
    monkeypatch.setattr(serving_load, "report", lambda sizes, folder, peers: asked.update(peers) or {"refusing": []})
    words = [
        "x",
        "--out",
        str(tmp_path / "out.json"),
        "--llama-server",
        "/a b/llama-server",
        "--peer",
        "me=x --port {port}",
    ]
    monkeypatch.setattr(sys, "argv", words)
    serving_load.main()
    made = commands(SIZES, tmp_path, asked)
    assert made["me"] == ["x", "--port", "{port}"]
    assert made["llama.cpp"][:2] == ["/a b/llama-server", "-m"]
    assert made["llama.cpp"][-12:] == [
        "-t", "1", "-tb", "1", "-np", "4", "-c", "1024", "--host", "127.0.0.1", "--port", "{port}",
    ]  # fmt: skip


def test_a_server_that_does_not_start_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="no such model here"),
        started([sys.executable, "-c", "raise SystemExit('no such model here')"], tmp_path),
    ):
        pass
