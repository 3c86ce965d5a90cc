"""Synthetic models: the same bytes always, whole or not at all, and what every engine opens."""

from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError, OutputError
from tritgold.formats.gguf_file import GgufFile
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward
from tritgold_conformance.bench import memory, peer_files, shapes, synthetic
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.shapes import MODELS, ModelShape
from tritgold_conformance.comparing.logits import log_softmax

TINY = ModelShape("tiny", 2, 256, 512, 4, 2, 64, 96, context=128)


@pytest.mark.filterwarnings("ignore::tritgold.errors.TritgoldWarning")
@pytest.mark.parametrize(
    "shape",
    [TINY, replace(TINY, activation="silu", sub_norms=False, tied_head=False, architecture="llama")],
    ids=["bitnet", "llama"],
)
def test_the_file_holds_the_model(shape: ModelShape, tmp_path: Path) -> None:
    path = synthetic.synthetic_model(shape, tmp_path)
    checkpoint = open_checkpoint(path)
    assert checkpoint.config == shape.config()
    metadata = GgufFile(path).metadata
    assert metadata["general.architecture"] == shape.architecture
    assert metadata["tokenizer.ggml.tokens"][:4] == ["<unk>", "<s>", "</s>", "t3"]
    assert len(metadata["tokenizer.ggml.tokens"]) == shape.vocab
    shares = np.concatenate([w.ternary().trits.reshape(-1) for _, w in checkpoint.weights.linears()])
    for trit, share in zip((-1, 0, 1), (5 / 16, 6 / 16, 5 / 16), strict=True):
        assert abs((shares == trit).mean() - share) < 0.01
    embedding = checkpoint.weights.embedding.rows(slice(0, shape.vocab))
    assert abs(embedding.std() - 0.7) < 0.05
    assert synthetic.model_bytes(shape) <= path.stat().st_size < synthetic.model_bytes(shape) + 20_000


def test_it_is_written_once_and_again_where_it_is_not_whole(tmp_path: Path) -> None:
    said: list[str] = []
    path = synthetic.synthetic_model(TINY, tmp_path, said.append)
    first = path.read_bytes()
    assert synthetic.synthetic_model(TINY, tmp_path, said.append) == path
    assert len(said) == 1
    path.write_bytes(first[:-1000])
    synthetic.synthetic_model(TINY, tmp_path, said.append)
    assert len(said) == 2
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_another_seed_or_size_is_another_file_and_a_cut_keeps_the_first_layers(tmp_path: Path) -> None:
    whole, cut = (synthetic.synthetic_model(s, tmp_path) for s in (TINY, TINY.cut(1)))
    assert synthetic.synthetic_model(replace(TINY, seed=1), tmp_path) not in (whole, cut)
    assert TINY.cut(9) == TINY
    first, second = (GgufFile(path).tensors for path in (whole, cut))
    assert set(second) == {name for name in first if not name.startswith("blk.1.")}
    assert all(np.array_equal(first[name].data, tensor.data) for name, tensor in second.items())


def test_no_two_tensors_have_the_same_numbers(tmp_path: Path) -> None:
    tensors = GgufFile(synthetic.synthetic_model(TINY, tmp_path)).tensors.values()
    assert len({bytes(tensor.data[:64]) for tensor in tensors}) == len(tensors)


@pytest.mark.filterwarnings("ignore::tritgold.errors.TritgoldWarning")
def test_transformers_gets_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = synthetic.synthetic_model(TINY, synthetic.cache_folder())
    folder = peer_files.for_transformers(path, "tiny", lambda _: None)
    ours, theirs = open_checkpoint(path), open_checkpoint(folder)
    for (name, a), (_, b) in zip(ours.weights.linears(), theirs.weights.linears(), strict=True):
        assert np.array_equal(a.ternary().trits, b.ternary().trits), name
        assert np.float32(a.ternary().with_one_scale().scale) == np.float32(b.ternary().scale), name
    rows = slice(0, TINY.vocab)
    assert np.array_equal(ours.weights.embedding.rows(rows), theirs.weights.embedding.rows(rows))
    assert np.array_equal(ours.weights.layers[1].ffn_sub_norm, theirs.weights.layers[1].ffn_sub_norm)


@pytest.mark.filterwarnings("ignore::tritgold.errors.TritgoldWarning")
def test_another_file_of_the_same_name_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = []
    for seed in (1, 2):
        path = synthetic.synthetic_model(replace(TINY, seed=seed), tmp_path).rename(tmp_path / "model.gguf")
        found.append(peer_files.for_transformers(path, "model.gguf", lambda _: None))
    assert found[0] != found[1]


def test_no_room_on_the_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: usage(0, 0, memory.SPARE + 1000))
    with pytest.raises(OutputError, match="XDG_CACHE_HOME") as caught:
        synthetic.synthetic_model(TINY, tmp_path)
    assert caught.value.kind == "disk-full"
    assert not list(tmp_path.iterdir())


def test_too_little_memory_names_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2_000_000_000)
    memory.require_memory({"xla": 1_000_000_000})
    with pytest.raises(EngineError, match=r"xla 1\.0, llama\.cpp 1\.5 GB.*2\.0 GB free.*--layers") as caught:
        memory.require_memory({"xla": 1_000_000_000, "llama.cpp": 1_500_000_000})
    assert caught.value.kind == "memory"


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="XDG_CACHE_HOME"):
        synthetic.cache_folder()

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(synthetic.Path, "home", homeless)
    with pytest.raises(OutputError, match=r"XDG_CACHE_HOME.*\[no-folder\]"):
        synthetic.cache_folder()


def test_the_named_shapes_are_those_of_the_models() -> None:
    sizes = {shape.name: memory.ternary_weights(shape.config()) for shape in MODELS}
    assert sizes["2b-4t"] == 2_084_044_800  # docs of the model: 2.4 B with the embedding's 328 M
    assert memory.head_weights(shapes.MODELS[0].config()) == 328_335_360
    for shape in MODELS:
        small = shape.small()
        assert (small.hidden, small.inter, small.layers) == (shape.hidden, shape.inter, 2)
        assert shape.hidden % 256 == shape.inter % 256 == 0


def test_memory_of_this_process_is_known_here() -> None:
    if Path("/proc/self/status").exists():
        assert (memory.peak_memory() or 0) > 20_000_000
        assert (memory.available_memory() or 0) > 1_000_000


def test_a_telling_model_shows_what_its_layers_compute(tmp_path: Path) -> None:
    """With the usual embedding a tied head is sure of the token that was just read, with layers and without."""

    def computed(shape: ModelShape) -> float:
        """How far the log-probabilities of the likeliest tokens are from those of layers that give nothing, nats."""
        opened = quietly_opened(synthetic.synthetic_model(shape, tmp_path))
        zeros = lambda codes, trits: np.zeros((len(codes), len(trits)), np.int32)  # noqa: E731
        nothing = replace(GOLDEN_ARITHMETIC, accumulate=zeros)
        rows = [
            log_softmax(forward([3, 5, 7], opened.weights, opened.config, arithmetic=arithmetic))
            for arithmetic in (GOLDEN_ARITHMETIC, nothing)
        ]
        best = np.argsort(-rows[0], axis=1)[:, :1]
        return float(np.abs(np.take_along_axis(rows[0] - rows[1], best, axis=1)).max())

    usual = ModelShape("usual", 2, 2560, 256, 20, 5, 128, 256, context=64)
    assert computed(usual) < 0.1
    assert computed(usual.telling()) > 1
    assert usual.telling().config() == usual.config()
