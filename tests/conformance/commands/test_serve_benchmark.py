"""A server's YAML can ask for the benchmark, as --benchmark does."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tritgold_conformance.cli import main
from tritgold_conformance.commands import serve

pytest.importorskip("uvicorn")


@pytest.mark.parametrize(("enabled", "options", "asked"), [("true", [], 1), ("false", ["--benchmark"], 1)])
def test_the_file_asks_for_the_benchmark(
    enabled: str, options: list[str], asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def benchmark(running: object, service: object, socket: object, server: object) -> None:
        seen.append(server["benchmark.iterations"])  # type: ignore[index]
        socket.close()  # type: ignore[attr-defined]

    monkeypatch.setattr(serve, "_benchmark", benchmark)
    file = tmp_path / "dlm_server.yaml"
    file.write_text(
        f"model_path: seeded\nhost: 127.0.0.1\nport: 0\ndlm: {{decode_mode: ar}}\n"
        f"benchmark: {{enabled: {enabled}, iterations: 3}}\n"
    )
    done = CliRunner().invoke(main, ["serve", "--config", str(file), *options])
    assert done.exit_code == 0, done.output
    assert seen == [3] * asked
