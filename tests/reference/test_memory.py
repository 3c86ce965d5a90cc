"""A model costs its packed bytes on disk and one matrix in memory, however large it is."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
import pytest
from resident import mapped_bytes
from small_models import TINY, WIDE, Entry, as_gguf, bf16_entry, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.convert.proof import prove
from tritgold.model import forward

MEGABYTE = 1_000_000
LAYERS = 12
LARGEST = 768 * 256  # weights of gate, up and down
ALL = LAYERS * (2 * 256 * 256 + 2 * 128 * 256 + 3 * LARGEST)

PROBE = """
import sys
import numpy as np
from tritgold.checkpoint import open_checkpoint
from tritgold.formats.gguf_file import GgufFile

def peak():
    # Not getrusage: on Linux its peak is inherited from the process that started this one.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

before = peak()
tensor = GgufFile(sys.argv[1]).tensors["token_embd.weight"]
model = open_checkpoint(sys.argv[1])
model.weights.embedding.rows(np.array([0, 17, tensor.shape[0] - 1]))
opened = peak()
model.weights.embedding.rows(slice(0, 4_000_000))
print(opened - before, peak() - opened)
"""


def test_opening_a_gigabyte_keeps_next_to_nothing(tmp_path: Path) -> None:
    """A sparse file: the embedding is 1 GB of zeros that no disk holds. Read for NaN once, then three rows of it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak memory of a process is read from Linux's /proc")
    rows = 2**30 // 32
    model = as_gguf(seeded(tmp_path, TINY).write(tmp_path / "hf"), "bitnet-b1.58")
    embedding = g.Tensor("token_embd.weight", (rows, 16), g.TYPE_F16, b"")
    model.set("bitnet-b1.58.vocab_size", g.U32, rows)
    # The last of the file, so that a truncate makes its bytes.
    others = [t for name, t in model.tensors.items() if name != embedding.name]
    end = sum(g.aligned(len(t.data), 32) for t in others)
    path = tmp_path / "m.gguf"
    path.write_bytes(g.gguf(model.pairs.values(), [*others, replace(embedding, offset=end)]))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + rows * 32)
    done = subprocess.run([sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    opening, reading = (int(n) / MEGABYTE for n in done.stdout.split())
    assert opening < 50
    assert reading > 150  # the control: 64 million numbers that were asked for do show


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve layers: all trits as int8 are far more than a few matrices as float32."""
    folder = tmp_path_factory.mktemp("deep")
    return seeded(folder, replace(WIDE, inter=768, layers=LAYERS)).write(folder / "hf")


def traced(act: Callable[[], object]) -> tuple[int, int]:
    """Bytes still held when the act is over, and at its peak."""
    tracemalloc.start()
    try:
        result = act()
        held, peak = tracemalloc.get_traced_memory()
        del result
        return held, peak
    finally:
        tracemalloc.stop()


def test_a_forward_pass_unpacks_one_matrix_at_a_time(deep: Path) -> None:
    opened = open_checkpoint(deep)
    forward([1], opened.weights, opened.config)
    _, peak = traced(lambda: forward([1, 2, 3], opened.weights, opened.config))
    bound = 4 * LARGEST * 2  # two float32 images of the largest matrix
    assert peak < bound
    # The control: whoever keeps the trits, even as int8, is beyond the bound.
    _, hoard = traced(lambda: [weight.ternary() for _, weight in opened.weights.linears()])
    assert hoard > ALL > 4 * bound


def open_and_hash(path: Path) -> Checkpoint:
    opened = open_checkpoint(path)
    opened.model_hash()
    return opened


@pytest.mark.parametrize("type_id", [None, g.TYPE_I2_S, g.TYPE_TQ2_0])
def test_opening_and_hashing_hold_no_matrix(deep: Path, tmp_path: Path, type_id: int | None) -> None:
    path = deep if type_id is None else as_gguf(deep, "bitnet-b1.58", type_id).write(tmp_path / "m.gguf")
    held, peak = traced(lambda: open_and_hash(path))
    assert held < MEGABYTE // 2
    assert peak < 4 * LARGEST * 2


def test_an_online_model_keeps_two_bits_a_weight(deep: Path, tmp_path: Path) -> None:
    model = seeded(tmp_path, replace(WIDE, inter=768, layers=LAYERS))
    model.config["quantization_config"] |= {"quantization_mode": "online"}
    random = np.random.default_rng(0)
    for name in [n for n in model.entries if n.endswith("_proj.weight")]:
        rows, columns = model.entries[name].shape
        del model.entries[f"{name}_scale"]
        model.entries[name] = bf16_entry(random.normal(size=(4 * rows, columns)).astype(np.float32))
    path = model.write(tmp_path / "hf")
    held, peak = traced(lambda: open_checkpoint(path))
    assert ALL // 4 < held < ALL // 4 + MEGABYTE // 2
    assert peak - held < 4 * LARGEST * 6


# ---- the bytes of mapped files -----------------------------------------------------------------------------------

ROWS = 2**16  # of the embedding, 32 MB; the linears are 12 MB


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose files are large beside one of its matrices: every linear weight -1, as zero bytes say."""
    folder = tmp_path_factory.mktemp("large")
    model = seeded(folder, replace(WIDE, layers=1))
    inter = 2**16
    model.config |= {"vocab_size": ROWS, "intermediate_size": inter}
    model.entries["model.embed_tokens.weight"] = Entry("BF16", (ROWS, 256), bytes(ROWS * 256 * 2))
    model.entries["model.layers.0.mlp.ffn_sub_norm.weight"] = bf16_entry(np.ones(inter, np.float32))
    for name, shape in {"gate": (inter // 4, 256), "up": (inter // 4, 256), "down": (64, inter)}.items():
        data = bytes(shape[0] * shape[1])
        model.entries[f"model.layers.0.mlp.{name}_proj.weight"] = Entry("U8", shape, data)
    return model.write(folder / "hf")


def test_opening_does_not_keep_the_payloads_that_it_checks(large: Path) -> None:
    before = mapped_bytes()
    opened = open_checkpoint(large)
    assert mapped_bytes() - before < 3 * MEGABYTE
    for _, weight in opened.weights.linears():
        weight.ternary()
    assert mapped_bytes() - before < 3 * MEGABYTE
    opened.weights.embedding.rows(np.arange(0, ROWS, 8))
    assert mapped_bytes() - before > 30 * MEGABYTE  # the control: what is read and not given back does show


@pytest.mark.parametrize(("source", "to"), [("hf", "i2_s"), ("i2_s", "tq2_0"), ("tq2_0", "hf")])
def test_converting_keeps_no_matrix_of_either_file(
    large: Path, tmp_path: Path, source: str, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source != "hf":
        convert(open_checkpoint(large), tmp_path / source, source, Options())
    opened, seen, before = open_checkpoint(large if source == "hf" else tmp_path / source), list[int](), mapped_bytes()

    def proving(*arguments: Any) -> None:
        prove(*arguments)
        seen.append(mapped_bytes() - before)  # while both files are mapped

    monkeypatch.setattr("tritgold.convert.prove", proving)
    convert(opened, tmp_path / "out", to, Options(), lambda *_: seen.append(mapped_bytes() - before))
    assert len(seen) > 20
    assert max(seen) < 10 * MEGABYTE
