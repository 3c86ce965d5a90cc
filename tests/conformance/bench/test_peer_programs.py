"""Built programs of llama.cpp and its forks as peers: judged first, timed by their own clock. The programs are fake."""

import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritgold.errors import EngineError
from tritgold.formats.gguf_split import open_gguf
from tritgold_conformance.bench import peer_names
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.peer_files import for_llama_cpp
from tritgold_conformance.bench.peer_judge import Shown, _judged, shown
from tritgold_conformance.bench.plan import Plan
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.run import run
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.bench.worker_llama import LlamaPeer

TINY = ModelShape("tiny", 2, 256, 256, 4, 2, 64, 64, context=128)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with the programs and a model; conversions are kept in it as well."""
    folder = tmp_path_factory.mktemp("peers")
    script = Path(__file__).with_name("fake_llama.py").read_text()
    for name in ("llama-server", "llama-bench"):
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        path = synthetic_model(TINY, folder)
        yield folder, Model("tiny", path, path, TINY.config())


def test_a_server_is_judged_and_timed_in_the_same_rounds(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = made
    monkeypatch.chdir(tmp_path)
    spec = f"ik_llama.cpp+q8_0={folder}/llama-server"
    plan = Plan(
        rows=("decode", "prefill"), threads=(1,), contexts=(8,), tokens=(16,), steps=2, runs=1, engine="reference",
        bandwidth_size=1 << 20, peers=(spec,),
    )  # fmt: skip
    found = run(plan, model, [])
    assert [(r.row, r.engine, r.status) for r in found.results] == [
        (row, engine, "measured") for row in ("decode", "prefill") for engine in ("reference", "ik_llama.cpp+q8_0")
    ]
    decode, prefill = (r.timing for r in found.results if r.engine != "reference")
    assert decode is not None
    assert prefill is not None
    assert (decode.median, prefill.median) == pytest.approx((9e-3 / 2, 2e-3))  # its own clock: three tokens for two
    assert found.results[1].ratio is not None
    assert found.results[1].bytes_moved is not None
    side = found.engines[0]
    assert (side.name, side.passed, side.options["head"]) == ("ik_llama.cpp+q8_0", True, "q8_0")
    assert "nats from golden" in side.judged
    assert side.versions == {"ik_llama.cpp": "version: 1 (fake)"}
    assert side.peak_memory
    assert list(tmp_path.iterdir()) == [], "the server's log is not left where the bench was started"


@pytest.mark.parametrize(("way", "passed"), [("", True), ("old", True), ("nothing", False)])
def test_an_engine_that_computes_nothing_does_not_pass(
    made: Any, way: str, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = made
    monkeypatch.setenv("FAKE_LLAMA", way)
    spec = f"bitnet.cpp={folder}/llama-server"
    file = for_llama_cpp(model.path, "tiny", peer_names.peer(spec), lambda _: None)
    verdict = LlamaPeer(peer_names.peer(spec), 1).judge(str(file))
    assert verdict["passed"] is passed, verdict["text"]
    assert "that give nothing" in verdict["text"]


def test_a_llama_bench_is_judged_by_the_server_of_its_folder(made: Any) -> None:
    folder, model = made
    spec = f"llama.cpp={folder}/llama-bench"
    assert peer_names.peer(spec).server == folder / "llama-server"
    one = LlamaPeer(peer_names.peer(spec), 1)
    assert one.judge(str(model.path))["passed"]
    one.open(str(model.path), capacity=64, vocab=64)
    assert one.measure("prefill", {"tokens": 8})["seconds"] == [pytest.approx(5e-3)]
    assert one.measure("decode", {"context": 8, "steps": 2})["seconds"] == [pytest.approx(5e-3 / 2)]


def test_a_server_that_refuses_the_file_says_why(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, model = made
    monkeypatch.setenv("FAKE_LLAMA", "dies")
    with pytest.raises(EngineError, match="unknown model architecture"):
        LlamaPeer(peer_names.peer(f"bitnet.cpp={folder}/llama-server"), 1).judge(str(model.path))


def test_a_bench_without_a_server_is_refused(tmp_path: Path) -> None:
    alone = tmp_path / "llama-bench"
    alone.write_text("")
    alone.chmod(0o755)
    with pytest.raises(ValueError, match="shows no logits"):
        peer_names.peer(f"llama.cpp={alone}")


@pytest.mark.parametrize("head", ["q4_0"])
def test_the_file_of_a_peer_holds_the_same_trits(made: Any, head: str) -> None:
    folder, model = made
    named = peer_names.Peer("ik_llama.cpp", head, folder / "llama-server")
    file = for_llama_cpp(model.path, "tiny", named, lambda _: None)
    assert for_llama_cpp(model.path, "tiny", named, lambda _: pytest.fail("made twice")) == file
    ours, theirs = quietly_opened(model.path), quietly_opened(file)
    dtypes = {tensor.dtype for tensor in open_gguf(file).tensors.values()}
    assert {"IQ2_BN", head.upper()} <= dtypes
    for (name, one), (_, other) in zip(ours.weights.linears(), theirs.weights.linears(), strict=True):
        assert np.array_equal(one.ternary().trits, other.ternary().trits), name
    near = theirs.weights.embedding.rows(slice(0, 8)) - ours.weights.embedding.rows(slice(0, 8))
    assert 0 < np.abs(near).max() < 0.4


@pytest.mark.parametrize(
    ("name", "architecture"), [("llama.cpp", "bitnet"), ("bitnet.cpp", "bitnet"), ("ik_llama.cpp", "bitnet-b1.58")]
)
def test_a_model_with_sub_norms_is_given_to_each_peer_as_what_it_knows(made: Any, name: str, architecture: str) -> None:
    """bitnet.cpp of October 2024 refuses bitnet-b1.58 and bitnet-25."""
    folder, model = made
    assert quietly_opened(model.path).config.sub_norms
    named = peer_names.Peer(name, "q8_0", folder / "llama-server")
    file = for_llama_cpp(model.path, "known", named, lambda _: None)
    assert open_gguf(file).metadata["general.architecture"] == architecture


def test_what_servers_show_is_read_in_three_forms() -> None:
    listed = [{"id": 5, "token": "t5", "logprob": -0.5}]
    right = [Shown(5, {5: -0.5})]
    assert shown({"completion_probabilities": [{"id": 5, "top_logprobs": listed}]}) == right
    assert shown({"choices": [{"logprobs": {"content": [{"id": 5, "top_logprobs": listed}]}}]}) == right
    odd = {"content": "<s>", "probs": [{"tok_str": "<s>", "prob": 0.5}, {"tok_str": "t1", "prob": 0.0}]}
    assert shown({"completion_probabilities": [odd]}) == [Shown(None, {})]
    assert shown({}) == []
    (never,) = shown({"completion_probabilities": [{"id": 5, "top_logprobs": [{"id": 6, "logprob": -3.4e38}]}]})
    assert never.likeliest == {6: -80.0}


def test_a_peer_must_be_near_an_arithmetic_and_far_from_nothing() -> None:
    rows = np.log(np.array([[0.7, 0.2, 0.1]]))
    found = [Shown(0, {0: float(rows[0, 0]), 1: float(rows[0, 1])})]
    far = np.log(np.array([[0.1, 0.2, 0.7]]))
    assert _judged({"golden": rows}, far, found)[0]
    assert not _judged({"golden": rows + np.array([0.0, 0.5, 0.0])}, far, found)[0]
    assert not _judged({"golden": rows}, rows, found)[0]
