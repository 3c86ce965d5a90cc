"""GGUF: gguf-py's files read here, offsets followed wherever they lead, and the fork's types that gguf-py refuses."""

import struct
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from gguf_bytes import Tensor, f32

from tritgold.errors import TritgoldWarning
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.packings import packing

ARCH = g.pair("general.architecture", g.STRING, "bitnet-b1.58")
FLOATS = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)


def opened(tmp_path: Path, content: bytes) -> GgufFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return GgufFile(path)


# ---- files of gguf-py --------------------------------------------------------------------------------------------


def writer_file(path: Path, alignment: int | None = None) -> dict[str, np.ndarray]:
    """A file with every kind of value, string arrays ahead of the tensors; returns its float tensors."""
    writer = GGUFWriter(path, "bitnet")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "é", "", "\U0001f638"] * 50)
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("ints", list(range(-3, 4)))
    writer.add_array("bools", [True, False, True])
    writer.add_string("text", "two\nlines")
    for name, value in {"uint8": 255, "int8": -128, "uint16": 65535, "int16": -32768, "uint32": 2**32 - 1}.items():
        getattr(writer, f"add_{name}")(name, value)
    for name, value in {"int32": -(2**31), "uint64": 2**64 - 1, "int64": -(2**63)}.items():
        getattr(writer, f"add_{name}")(name, value)
    writer.add_float32("float32", 1e-5)
    writer.add_float64("float64", 0.1)
    writer.add_bool("yes", True)
    arrays = {
        "a.weight": FLOATS,
        "half.weight": FLOATS[:3].astype(np.float16),
        "vector": np.arange(7, dtype=np.float32),
        "cube": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    }
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    ternary = np.sign(np.random.default_rng(2).normal(size=(4, 256))).astype(np.float32)
    packed = quantize(ternary, GGMLQuantizationType.TQ2_0)
    writer.add_tensor("ternary.weight", packed, raw_dtype=GGMLQuantizationType.TQ2_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {**arrays, "ternary.weight": ternary}


@pytest.mark.parametrize("alignment", [None, 8, 4096])
@pytest.mark.parametrize("version", [2, 3])
def test_files_of_gguf_py_read_as_they_were_written(tmp_path: Path, version: int, alignment: int | None) -> None:
    path = tmp_path / "m.gguf"
    arrays = writer_file(path, alignment)
    raw = bytearray(path.read_bytes())
    raw[4:8] = struct.pack("<I", version)  # 2 and 3 differ in the promise of byte order only
    path.write_bytes(raw)
    file, theirs = GgufFile(path), GGUFReader(path)
    assert (file.version, file.alignment) == (version, alignment or 32)
    assert file.architecture == "bitnet"
    assert file.metadata["tokenizer.ggml.tokens"] == ["<s>", "é", "", "\U0001f638"] * 50
    assert file.metadata["text"] == "two\nlines"
    assert file.metadata["float32"] == float(np.float32(1e-5))
    assert file.metadata["float64"] == 0.1
    assert file.metadata["yes"] is True
    limits = {"uint8": 255, "int8": -128, "uint16": 65535, "int16": -32768, "uint32": 2**32 - 1, "int32": -(2**31)}
    for key, value in {**limits, "uint64": 2**64 - 1, "int64": -(2**63)}.items():
        assert file.metadata[key] == value
        assert type(file.metadata[key]) is int
    for key, values in {"floats": [0.5, -1.5], "ints": list(range(-3, 4)), "bools": [True, False, True]}.items():
        assert file.metadata[key].tolist() == values
    keys = [k for k in theirs.fields if not k.startswith("GGUF.")]
    assert list(file.metadata) == keys
    assert list(file.tensors) == list(arrays) == [t.name for t in theirs.tensors]
    for other in theirs.tensors:
        tensor = file.tensors[other.name]
        assert tensor.offset == other.data_offset
        assert tensor.offset % file.alignment == 0
        assert tensor.data.tobytes() == other.data.tobytes()
        assert tensor.shape == arrays[other.name].shape
        if tensor.dtype != "TQ2_0":
            assert np.array_equal(tensor.floats(), arrays[other.name].astype(np.float32))
    ternary = file.tensors["ternary.weight"]
    assert (ternary.dtype, file.type_ids["ternary.weight"]) == ("TQ2_0", 35)
    assert np.array_equal(packing("tq2_0").unpack(ternary.data, (4, 256)).dense(), arrays["ternary.weight"])


def test_the_byte_builder_agrees_with_gguf_py(tmp_path: Path) -> None:
    """The builder is the source of every hostile file below, so it is held against the library once."""
    pairs = [ARCH, g.pair("n", g.ARRAY, g.array(g.STRING, ["a", "bc"])), g.pair("i", g.I64, -5)]
    (tmp_path / "m.gguf").write_bytes(g.gguf(pairs, [f32("a", FLOATS), f32("b", FLOATS[0])]))
    theirs = GGUFReader(tmp_path / "m.gguf")
    assert theirs.fields["n"].contents() == ["a", "bc"]
    assert theirs.fields["i"].contents() == -5
    assert [t.name for t in theirs.tensors] == ["a", "b"]
    assert np.array_equal(theirs.tensors[0].data, FLOATS)


def test_offsets_are_followed_not_the_order_of_the_infos(tmp_path: Path) -> None:
    """Bug case B56: string arrays ahead, data in another order than the infos, gaps between."""
    words = g.pair("words", g.ARRAY, g.array(g.STRING, [f"word {i}" for i in range(33)]))
    rows = [FLOATS[i] for i in range(4)]  # 32 bytes each
    tensors = [f32(n, row, at) for n, row, at in zip("abcd", rows, (320, 0, 128, 64), strict=True)]
    for alignment in (32, 64):
        pairs = [words, ARCH, g.pair("general.alignment", g.U32, alignment)]
        file = opened(tmp_path, g.gguf(pairs, tensors, alignment=alignment))
        for name, row in zip("abcd", rows, strict=True):
            assert np.array_equal(file.tensors[name].floats(), row)
    in_order = g.gguf([words, ARCH], [f32(n, row) for n, row in zip("abcd", rows, strict=True)])
    moved = opened(tmp_path, in_order.replace(struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 64)).replace(
        struct.pack("<IQ", 0, 64), struct.pack("<IQ", 0, 32), 1))  # fmt: skip
    assert set(moved.tensors) == set("abcd")  # control: infos in file order are not a special case


@pytest.mark.parametrize("kind", [g.U32, g.U64, g.I32, g.U16])
def test_alignment_may_be_any_integer_type(tmp_path: Path, kind: int) -> None:
    data = g.gguf([g.pair("general.alignment", kind, 256)], [f32("a", FLOATS)], alignment=256)
    if kind == g.U32:
        assert opened(tmp_path, data).alignment == 256
    else:
        with pytest.warns(TritgoldWarning, match=f"is of value type {kind} where ggml asks for 4"):
            assert opened(tmp_path, data).alignment == 256


def test_an_alignment_that_llama_cpp_refuses_is_said(tmp_path: Path) -> None:
    """The specification asks for multiples of 8."""
    data = g.gguf([g.pair("general.alignment", g.U32, 24)], [f32("a", FLOATS)], alignment=24)
    with pytest.warns(TritgoldWarning, match="is 24, and llama.cpp refuses what is not a power of two"):
        file = opened(tmp_path, data)
    assert file.alignment == 24
    assert np.array_equal(file.tensors["a"].floats(), FLOATS)


def test_a_file_without_tensors_is_a_file(tmp_path: Path) -> None:
    file = opened(tmp_path, g.gguf([ARCH]))
    assert (file.tensors, file.architecture) == ({}, "bitnet-b1.58")
    assert opened(tmp_path, g.gguf()).metadata == {}


# ---- the fork's types --------------------------------------------------------------------------------------------

TRITS = np.random.default_rng(3).integers(-1, 2, (2, 128), np.int8)


def i2_s(name: str, trits: np.ndarray = TRITS, scale: float = 0.37) -> Tensor:
    data = g.i2_s((trits.reshape(-1).astype(int) + 1).tolist(), scale, b"\xab" * 28)
    return Tensor(name, trits.shape, g.TYPE_I2_S, data)


@pytest.mark.parametrize("order", [("w", "v"), ("v", "w"), ("w", "w2", "v")])
def test_i2_s_is_payload_and_trailer_wherever_it_stands(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Bug case B16, and confusion 7: a reader that forgets the trailer errs on the next tensor, or only at the end."""
    parts = {"w": i2_s("w"), "w2": i2_s("w2", -TRITS), "v": f32("v", FLOATS)}
    file = opened(tmp_path, g.gguf([ARCH], [parts[n] for n in order]))
    assert np.array_equal(file.tensors["v"].floats(), FLOATS)
    w = file.tensors["w"]
    assert (w.dtype, w.data.size, file.type_ids["w"]) == ("I2_S", 2 * 128 // 4 + 32, 36)
    tensor = packing("i2_s").unpack(w.data, (2, 128))
    assert np.array_equal(tensor.trits, TRITS)
    assert tensor.scale == np.float32(0.37)


def test_gguf_py_itself_refuses_type_36(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(g.gguf([ARCH], [i2_s("w")]))
    with pytest.raises(ValueError, match=r"36\)? is not a valid"):
        GGUFReader(tmp_path / "m.gguf")


@pytest.mark.parametrize(("type_id", "name", "size"), [(37, "I8_S", 288), (38, "TL1", 96)])
def test_the_container_lists_fork_types_by_name(tmp_path: Path, type_id: int, name: str, size: int) -> None:
    file = opened(tmp_path, g.gguf([ARCH], [Tensor("w", (2, 128), type_id, bytes(size)), f32("v", FLOATS)]))
    assert (file.tensors["w"].dtype, file.tensors["w"].data.size) == (name, size)


@pytest.mark.parametrize(("arch", "name", "size"), [("bitnet-b1.58", "TL2", 2080), ("llama", "MXFP4", 4352)])
def test_39_is_what_the_architecture_says(tmp_path: Path, arch: str, name: str, size: int) -> None:
    pairs = [g.pair("general.architecture", g.STRING, arch)]
    w = opened(tmp_path, g.gguf(pairs, [Tensor("w", (32, 256), 39, bytes(size))])).tensors["w"]
    assert (w.dtype, w.data.size) == (name, size)


def test_dequantised_values_equal_those_of_gguf_py(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer_file(path)
    theirs = {t.name: t for t in GGUFReader(path).tensors}["ternary.weight"]
    ours = packing("tq2_0").unpack(GgufFile(path).tensors["ternary.weight"].data, (4, 256))
    assert np.array_equal(ours.dense(), dequantize(theirs.data, GGMLQuantizationType.TQ2_0))
