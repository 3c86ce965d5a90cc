"""Code 3 read as 0 where that is asked for, through the door: B08. Kernels of the field have read it as +1 and +2."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from refusals import refusal
from small_models import TOKENS, WIDE, GgufModel, HfModel, Q, as_gguf, seeded
from trit_layouts import place

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import PackingError
from tritgold.formats.layouts import Layouts
from tritgold.formats.stored_weights import PackedWeight
from tritgold.model import forward
from tritgold.ternary import TernaryTensor

SHAPE = (256, 256)
# First and last place, two neighbours, one of every pair of bits and of both halves of a block of TQ2_0.
AT = [(0, 0), (255, 255), (7, 30), (7, 31), (64, 5), (128, 5), (192, 5), (9, 37), (9, 70), (9, 101), (9, 165)]
CODE = {3: 3, 0: 1}  # what the bits are, for code 3 and for a true 0


def patched(name: str, data: bytes, code: int) -> bytes:
    """The bytes with this code at every place of AT."""
    changed = bytearray(data)
    for row, column in AT:
        byte, shift = place(name, row, column, SHAPE)
        changed[byte] = changed[byte] & ~(3 << shift) | code << shift
    return bytes(changed)


def hf(folder: Path, code: int | None) -> Path:
    model: HfModel = seeded(folder / "parts", WIDE)
    entry = model.entries[f"{Q}.weight"]
    if code is not None:
        model.entries[f"{Q}.weight"] = replace(entry, data=patched("hf", entry.data, code))
    return model.write(folder / "m")


def gguf(name: str, type_id: int) -> Callable[[Path, int | None], Path]:
    def write(folder: Path, code: int | None) -> Path:
        model: GgufModel = as_gguf(seeded(folder / "parts", WIDE).write(folder / "hf"), "bitnet-b1.58", type_id)
        tensor = model.tensors["blk.0.attn_q.weight"]
        if code is not None:
            model.alter(tensor.name, data=patched(name, tensor.data, code))  # type: ignore[arg-type]
        return model.write(folder / "m.gguf")

    return write


Writer = Callable[[Path, int | None], Path]
every = pytest.mark.parametrize(
    "write", [hf, gguf("i2_s", g.TYPE_I2_S), gguf("tq2_0", g.TYPE_TQ2_0)], ids=["hf", "i2_s", "tq2_0"]
)


def lenient(path: Path) -> Checkpoint:
    return open_checkpoint(path, layouts=Layouts(code3_as_zero=True))


def check_zero(write: Writer, tmp_path: Path) -> None:
    """Trit 0 at every place, all other trits, scales and floats as in the model before; the same logits as of a file
    with a true 0 there.
    """
    before = open_checkpoint(write(tmp_path / "before", None))
    dirty = lenient(write(tmp_path / "dirty", CODE[3]))
    found, truth = (checkpoint.weights.layers[0].q.ternary() for checkpoint in (dirty, before))
    expected = truth.trits.copy()
    expected[tuple(np.transpose(AT))] = 0
    assert not np.array_equal(expected, truth.trits)
    assert np.array_equal(found.trits, expected)
    assert found.trits.dtype == np.int8
    assert found.scale == truth.scale
    clean = open_checkpoint(write(tmp_path / "clean", CODE[0]))
    assert dirty.model_hash() == clean.model_hash() != before.model_hash()
    logits = [forward(TOKENS, checkpoint.weights, checkpoint.config) for checkpoint in (dirty, clean)]
    assert np.array_equal(*logits)


@every
def test_code_3_is_0_where_that_is_asked_for(write: Writer, tmp_path: Path) -> None:
    check_zero(write, tmp_path)


@every
def test_and_is_refused_otherwise_with_its_count(write: Writer, tmp_path: Path) -> None:
    path = write(tmp_path, CODE[3])
    error = refusal(lambda: open_checkpoint(path))
    assert error.kind == "code-3"
    assert f"occurs {len(AT)} times, first at [0, 0]" in str(error)


@every
def test_a_clean_file_reads_the_same_either_way(write: Writer, tmp_path: Path) -> None:
    path = write(tmp_path, None)
    assert lenient(path).model_hash() == open_checkpoint(path).model_hash()


@every
@pytest.mark.parametrize("wrong", [-1, 1, 2])
def test_any_other_reading_would_be_found(
    write: Writer, wrong: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """+2 is not a trit, and is refused as that."""

    def unpacked(self: PackedWeight) -> TernaryTensor:
        codes = self.layout.codes(self.stored.data, self.shape).astype(np.int8)
        trits = np.where(codes > 2, np.int8(wrong), codes - np.int8(1))
        return TernaryTensor(trits, self.layout.scales(self.stored.data, self.shape))

    monkeypatch.setattr(PackedWeight, "_unpacked", unpacked)
    with pytest.raises(AssertionError if wrong < 2 else PackingError):
        check_zero(write, tmp_path)
