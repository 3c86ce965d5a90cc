"""``--engine transformers``, ``--engine llama.cpp`` and ``--engine http://...`` against the peers themselves.

What needs no peer is tested everywhere: which Python they run by, and what is said where they are not installed.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from judged import llama_cpp_server
from small_models import llama_like

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import EngineError, MissingDependencyError
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape
from tritgold_conformance.cli import main
from tritgold_conformance.contract.engine import MODES
from tritgold_conformance.engines import peers
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.engines.peers import with_plain_vocabulary
from tritgold_conformance.golden.run import named_arithmetic
from tritgold_conformance.questions.evidence import BEHAVIOURS
from tritgold_conformance.results.levels import OF_THE_LADDER, WEAKEST

HERE = Path(__file__).parent
PYTHON = os.environ.get("TRITGOLD_PEERS_PYTHON", "")
live = pytest.mark.skipif(
    not PYTHON, reason="the peers run only where TRITGOLD_PEERS_PYTHON names their python; make peers"
)
TOKENS = "16"
BLOCKS = Shape(seed=4, hidden=256, inter=512, layers=2, context=64)  # rows that TQ2_0 can hold


def check(engine: str, model: Path | str, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of ``tritgold check``."""
    words = ["check", "--engine", engine, "--model", str(model), "--tokens", TOKENS, "--one-text", "--json", *more]
    result = CliRunner().invoke(main, words)
    return result.exit_code, json.loads(result.stdout)


def statuses(report: dict[str, Any], status: str) -> set[str]:
    return {name for name, level in report["levels"].items() if level["status"] == status}


# ---- without the peers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", peers.PEERS)
def test_what_is_missing_is_named_with_what_to_install(
    peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a Python that has nothing: isolated, without its site-packages."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(peers.PYTHON, str(python))
    path = trained_model("kjv-ar")
    with pytest.raises(MissingDependencyError) as refused:
        load_engine(peer, path, open_checkpoint(path), 4)
    for package in peers.NEEDS[peer]:
        assert package in refused.value.message
    assert "pip install" in str(refused.value)
    assert check(peer, path)[0] == 3


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/true", "/bin/false"])
def test_what_is_no_python_is_said(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(peers.PYTHON, python)
    path = trained_model("kjv-ar")
    with pytest.raises(EngineError) as refused:
        load_engine("llama.cpp", path, open_checkpoint(path), 4)
    assert peers.PYTHON in str(refused.value)


def test_the_modes_of_the_command_are_those_there_are() -> None:
    assert len({id(named_arithmetic(name)) for name in MODES}) == len(MODES)
    with pytest.raises(EngineError, match=r"unknown arithmetic: found 'exact', expected golden, llama-cpp-q8_k"):
        named_arithmetic("exact")


def test_another_mode_is_another_verdict() -> None:
    """The reference is right in its own mode, and the report says which one it was held to."""
    code, report = check("reference", "kjv-ar", "--mode", "llama-cpp-q8_k", "--no-speed")
    assert (code, report["mode"]) == (1, "llama-cpp-q8_k/1")
    unseen = {"packed_bytes", "operations", "edge_cases", "statistics", "trace", "next_tokens", "timed"}
    unseen |= {*BEHAVIOURS, *OF_THE_LADDER, WEAKEST}
    assert statuses(report, "not assessed") == unseen
    assert "--mode llama-cpp-q8_k" in report["reproduce"]
    words = ["check", "--engine", "reference", "--mode", "llama-cpp-q8_k", "--only", "layers.0.q", "--tokens", "2"]
    assert CliRunner().invoke(main, words).exit_code == 2


# ---- live ------------------------------------------------------------------------------------------------------------


@live
@pytest.mark.parametrize("model", ["kjv-ar", "bitnet-auto-online-untied", "llama-bitlinear-untied"])
def test_transformers_conforms(model: str) -> None:
    path = model if model == "kjv-ar" else HERE / "fixtures" / model / "checkpoint"
    code, report = check("transformers", path)
    assert code == 0, report["levels"]
    assert statuses(report, "passed") == {"trace", "logits", "continued", "steps"}
    assert report["levels"]["operations"]["status"] == report["levels"]["next_tokens"]["status"] == "not assessed"
    assert report["engine"]["versions"].keys() == {"transformers", "torch"}
    assert report["engine"]["speed"]["clock"] == "program"
    assert report["engine"]["speed"]["prefill"] > 0 < report["engine"]["speed"]["decode"]
    assert report["levels"]["trace"]["compared"] > 10 * report["config"]["layers"]


@live
def test_transformers_reads_what_gguf_is_converted_to(tmp_path: Path) -> None:
    convert(open_checkpoint(trained_model("kjv-ar")), tmp_path / "m.gguf", "i2_s", Options())
    code, report = check("transformers", tmp_path / "m.gguf")
    assert code == 0, report["levels"]


@live
def test_a_wrong_transformers_does_not_conform(tmp_path: Path) -> None:
    """It reads another theta than the golden model, which has read the checkpoint before it was changed."""
    folder = tmp_path / "m"
    shutil.copytree(trained_model("kjv-ar"), folder)
    checkpoint = open_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 5e5, "rope_parameters": None}))
    from asked_once import judge

    from tritgold_conformance.golden.run import GoldenRun, judging_tokens

    golden = GoldenRun.of(checkpoint, judging_tokens(8, 2048, 1))
    report = judge(golden, load_engine("transformers", folder, checkpoint, 8), "m")
    assert report.exit_code == 1
    assert report.first_divergence is not None
    assert report.first_divergence.name == "layers.0.attn_sub_norm"


@live
def test_llama_cpp_conforms_in_its_mode(tmp_path: Path) -> None:
    """A Llama model, whose graph it has; every log-probability of the vocabulary."""
    path = llama_like(tmp_path / "made", Shape(seed=4, hidden=256, inter=512, layers=2, context=64)).write(
        tmp_path / "m"
    )
    code, report = check("llama.cpp", path)
    assert code == 0, report["levels"]
    assert statuses(report, "passed") == {"next_tokens"}
    assert report["mode"] == "llama-cpp-q8_k/1"
    assert {position["shown"] for position in report["text"]["positions"]} == {259}
    assert report["engine"]["speed"]["clock"] == "program"
    assert report["engine"]["speed"]["prefill"] > 0
    code, report = check("llama.cpp", path, "--mode", "golden")
    assert code == 1, "by token it would have other codes than by block"
    assert report["levels"]["next_tokens"]["failed"] == 16


@live
@pytest.mark.filterwarnings("ignore:llama.cpp runs SiLU")
def test_llama_cpp_on_the_embedded_model_runs_another_activation(tmp_path: Path) -> None:
    """As ``bitnet`` it runs SiLU; of the same weights with SiLU in their config it conforms."""
    assert check("llama.cpp", "kjv-ar")[0] == 1
    folder = tmp_path / "m"
    shutil.copytree(trained_model("kjv-ar"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "silu"}))
    code, report = check("llama.cpp", folder)
    assert code == 0, report["levels"]["next_tokens"]


@live
def test_a_file_that_llama_cpp_refuses_cannot_be_judged(tmp_path: Path) -> None:
    convert(open_checkpoint(trained_model("kjv-ar")), tmp_path / "m.gguf", "i2_s", Options())
    code, error = check("llama.cpp", tmp_path / "m.gguf")
    assert (code, error["kind"]) == (3, "engine-crash")
    assert "llama.cpp refuses the file" in error["hint"]


@live
@pytest.mark.parametrize("shown", [5, 259])
def test_a_real_server_is_judged_over_http(tmp_path: Path, shown: int) -> None:
    path = llama_like(tmp_path / "made", Shape(seed=4, hidden=256, inter=512, layers=2, context=64)).write(
        tmp_path / "m"
    )
    checkpoint = open_checkpoint(path)
    convert(checkpoint, tmp_path / "m.gguf", "tq2_0", Options(architecture="llama", embedding="F32"))
    with llama_cpp_server(with_plain_vocabulary(tmp_path / "m.gguf", checkpoint)) as address:
        engine = f"{address}?logprobs={shown}"
        code, report = check(engine, path, "--mode", "llama-cpp-q8_k")
        assert code == 0, report["levels"]["next_tokens"]
        assert report["engine"]["speed"]["clock"] == "judge"
        assert report["engine"]["speed"]["prefill"] > 0 < report["engine"]["speed"]["decode"]
        assert statuses(report, "passed") == {"next_tokens"}
        assert report["levels"]["next_tokens"]["compared"] == 16
        assert {position["shown"] for position in report["text"]["positions"]} == {shown}
        code, report = check(engine, path)
        assert code == 1, "not the golden model's arithmetic"
        assert report["engine"]["versions"]["server"].startswith("llama.cpp")
