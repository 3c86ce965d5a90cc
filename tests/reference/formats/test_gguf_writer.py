"""Writing GGUF: byte for byte what the test's own builder writes, key for key what gguf-py writes and reads."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from plans import assert_nothing_is_left, plan
from refusals import refusal

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf

FLOATS = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
ARCH = {"general.architecture": "bitnet-b1.58"}


def f32(name: str, values: np.ndarray = FLOATS) -> PlannedTensor:
    return plan(name, values.astype("<f4").tobytes(), "F32", values.shape)


# ---- bytes -------------------------------------------------------------------------------------------------------

METADATA: dict[str, tuple[Any, int, Any]] = {
    "yes": (True, g.BOOL, 1),
    "no": (False, g.BOOL, 0),
    "zero": (0, g.U32, 0),
    "small": (7, g.U32, 7),
    "u32 max": (2**32 - 1, g.U32, 2**32 - 1),
    "u32 max + 1": (2**32, g.U64, 2**32),
    "u64 max": (2**64 - 1, g.U64, 2**64 - 1),
    "minus one": (-1, g.I32, -1),
    "i32 min": (-(2**31), g.I32, -(2**31)),
    "i32 min - 1": (-(2**31) - 1, g.I64, -(2**31) - 1),
    "i64 min": (-(2**63), g.I64, -(2**63)),
    "float": (1e-5, g.F32, 1e-5),
    "integral float": (500000.0, g.F32, 500000.0),
    "text": ("é\n", g.STRING, "é\n"),
    "no text": ("", g.STRING, ""),
    "words": (["a", "", "\U0001f638"], g.ARRAY, g.array(g.STRING, ["a", "", "\U0001f638"])),
    "no words": ([], g.ARRAY, g.array(g.STRING, [])),
    "bools": (np.array([True, False]), g.ARRAY, g.array(g.BOOL, [1, 0])),
    "no ints": (np.zeros(0, np.int32), g.ARRAY, g.array(g.I32, [])),
    "big-endian": (np.array([1, 258], ">u2"), g.ARRAY, g.array(g.U16, [1, 258])),
    "every other": (np.arange(6, dtype=np.int32)[::2], g.ARRAY, g.array(g.I32, [0, 2, 4])),
}
ITEMS = {"u1": g.U8, "i1": g.I8, "u2": g.U16, "i2": g.I16, "u4": g.U32, "i4": g.I32, "u8": g.U64, "i8": g.I64}
METADATA |= {name: (np.array([3, 100], name), g.ARRAY, g.array(kind, [3, 100])) for name, kind in ITEMS.items()}
METADATA |= {
    "f4": (np.array([0.5, -1e-5], np.float32), g.ARRAY, g.array(g.F32, [0.5, -1e-5])),
    "f8": (np.array([0.1, 1e300]), g.ARRAY, g.array(g.F64, [0.1, 1e300])),
}


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_a_file_is_that_of_the_builder(tmp_path: Path, alignment: int) -> None:
    pairs = [g.pair(key, kind, value) for key, (_, kind, value) in METADATA.items()]
    pairs += [] if alignment == 32 else [g.pair("general.alignment", g.U32, alignment)]
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    i2_s = g.i2_s([0, 1, 2, 1] * 64, 0.37)
    theirs = [g.f32("b", FLOATS), g.Tensor("w", (2, 128), g.TYPE_I2_S, i2_s), g.f32("a", cube), g.f32("v", FLOATS[0])]
    ours = [f32("b"), plan("w", i2_s, "I2_S", (2, 128)), f32("a", cube), f32("v", FLOATS[0])]
    path = tmp_path / "m.gguf"
    write_gguf(path, {key: value for key, (value, _, _) in METADATA.items()}, iter(ours), alignment)
    assert path.read_bytes() == g.gguf(pairs, theirs, alignment=alignment, gap=b"\0")
    file = GgufFile(path)
    assert (file.alignment, list(file.tensors)) == (alignment, ["b", "w", "a", "v"])


def test_a_file_without_tensors_and_keys(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {}, [])
    assert (tmp_path / "m.gguf").read_bytes() == g.gguf()


def test_an_alignment_among_the_keys_stays_in_its_place(tmp_path: Path) -> None:
    """So that the metadata of a file read can be written again."""
    write_gguf(tmp_path / "m.gguf", {"general.alignment": 64, "k": 1}, [f32("a")], alignment=64)
    pairs = [g.pair("general.alignment", g.U32, 64), g.pair("k", g.U32, 1)]
    assert (tmp_path / "m.gguf").read_bytes() == g.gguf(pairs, [g.f32("a", FLOATS)], alignment=64)


# ---- gguf-py -----------------------------------------------------------------------------------------------------


def test_a_file_is_that_of_gguf_py(tmp_path: Path) -> None:
    """The same keys and tensors through its writer: the same bytes."""
    ternary = np.sign(np.random.default_rng(2).normal(size=(4, 256))).astype(np.float32)
    packed = {name: quantize(ternary, GGMLQuantizationType[name]) for name in ("TQ1_0", "TQ2_0", "BF16", "Q8_0")}
    theirs = GGUFWriter(tmp_path / "theirs.gguf", "bitnet-b1.58")
    theirs.add_array("tokenizer.ggml.tokens", ["<s>", "é", ""])
    theirs.add_array("tokenizer.ggml.token_type", [1, -3, 6])
    theirs.add_uint32("bitnet-b1.58.block_count", 30)
    theirs.add_float32("bitnet-b1.58.rope.freq_base", 500000.0)
    theirs.add_bool("tokenizer.ggml.add_bos_token", True)
    theirs.add_string("general.name", "two\nlines")
    theirs.add_tensor("a.weight", FLOATS)
    theirs.add_tensor("half.weight", FLOATS[:3].astype(np.float16))
    for name, data in packed.items():
        theirs.add_tensor(name, data, raw_dtype=GGMLQuantizationType[name])
    theirs.write_header_to_file()
    theirs.write_kv_data_to_file()
    theirs.write_tensors_to_file()
    theirs.close()
    metadata = {
        "general.architecture": "bitnet-b1.58",
        "tokenizer.ggml.tokens": ["<s>", "é", ""],
        "tokenizer.ggml.token_type": np.array([1, -3, 6], np.int32),
        "bitnet-b1.58.block_count": 30,
        "bitnet-b1.58.rope.freq_base": 500000.0,
        "tokenizer.ggml.add_bos_token": True,
        "general.name": "two\nlines",
    }
    half = plan("half.weight", FLOATS[:3].astype("<f2").tobytes(), "F16", (3, 8))
    others = [plan(name, data.tobytes(), name, (4, 256)) for name, data in packed.items()]
    write_gguf(tmp_path / "ours.gguf", metadata, [f32("a.weight"), half, *others])
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_gguf_py_reads_what_we_write(tmp_path: Path) -> None:
    # gguf-py 0.19 stumbles over empty arrays.
    metadata = {key: value for key, (value, _, _) in METADATA.items() if not key.startswith("no ")}
    ternary = quantize(np.ones((2, 512), np.float32), GGMLQuantizationType.TQ1_0)
    tensors = [f32("a"), plan("t", ternary.tobytes(), "TQ1_0", (2, 512)), f32("b", FLOATS[0])]
    write_gguf(tmp_path / "m.gguf", {**ARCH, **metadata}, tensors, alignment=64)
    read = GGUFReader(tmp_path / "m.gguf")
    for key, value in metadata.items():
        got = read.fields[key].contents()
        wanted = value.tolist() if isinstance(value, np.ndarray) else value
        assert np.allclose(got, wanted, rtol=1e-7) if isinstance(wanted, float) else got == pytest.approx(wanted), key
    assert [(t.name, t.tensor_type.name) for t in read.tensors] == [("a", "F32"), ("t", "TQ1_0"), ("b", "F32")]
    assert np.array_equal(read.tensors[0].data, FLOATS)
    assert read.tensors[1].data.tobytes() == ternary.tobytes()
    assert read.tensors[2].data_offset % 64 == 0


# ---- the fork's types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "dtype", "number", "shape", "size"),
    [
        ("bitnet-b1.58", "I2_S", 36, (2, 128), 96),
        ("llama", "I2_S", 36, (2, 128), 96),
        ("bitnet", "TL1", 38, (2, 128), 96),
        ("bitnet", "TL2", 39, (32, 256), 2080),
        ("llama", "MXFP4", 39, (32, 256), 4352),
        ("llama", "Q1_0", 41, (2, 128), 36),
        ("qwen3", "Q2_0", 42, (2, 128), 72),
    ],
)
def test_fork_types_come_back_by_name(
    tmp_path: Path, architecture: str, dtype: str, number: int, shape: tuple[int, ...], size: int
) -> None:
    data = np.random.default_rng(0).bytes(size)
    write_gguf(tmp_path / "m.gguf", {"general.architecture": architecture}, [plan("w", data, dtype, shape), f32("v")])
    assert struct.pack("<IQ", number, 0) in (tmp_path / "m.gguf").read_bytes()
    file = GgufFile(tmp_path / "m.gguf")
    w = file.tensors["w"]
    assert (w.dtype, w.shape, w.data.tobytes(), file.type_ids["w"]) == (dtype, shape, data, number)
    assert np.array_equal(file.tensors["v"].floats(), FLOATS)


# ---- what cannot be written --------------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file_and_no_scrap(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, ARCH, [f32("old")])
    tensors = [f32("a"), plan("w", g.i2_s([1] * 256, 0.5), "I2_S", (2, 128)), f32("c", FLOATS[0])]
    assert_nothing_is_left(tmp_path, tensors, lambda plans: write_gguf(path, ARCH, plans))


def key(key: str, value: Any) -> Callable[[Path], None]:
    return lambda path: write_gguf(path, {key: value}, [])


def tensor(tensor: PlannedTensor, architecture: str = "bitnet-b1.58") -> Callable[[Path], None]:
    return lambda path: write_gguf(path, {"general.architecture": architecture}, [f32("a"), tensor])


CASES: list[tuple[str, str, Callable[[Path], None]]] = [
    ("value", "key 'k': is too large an integer", key("k", 2**64)),
    ("value", "key 'k': is too large an integer", key("k", -(2**63) - 1)),
    ("value", "key 'k': is beyond float32: found 1e+300", key("k", 1e300)),
    ("value", "key 'k': has no type in GGUF: found NoneType", key("k", None)),
    ("value", "found dict", key("k", {})),
    ("value", "found bytes", key("k", b"a")),
    ("value", "found tuple", key("k", ("a",))),
    ("value", "found list", key("k", [1, 2])),
    ("value", "found list", key("k", ["a", 1])),
    ("value", "found ndarray", key("k", np.zeros((2, 2)))),
    ("value", "found ndarray", key("k", np.array(1))),
    ("value", "found ndarray", key("k", np.array(["a"]))),
    ("value", "found ndarray", key("k", np.array([1], np.float16))),
    ("value", "key 'k': cannot be UTF-8", key("k", "\ud800")),
    ("value", "key 'k': cannot be UTF-8", key("k", ["a", "\ud800"])),
    ("value", "cannot be UTF-8", key("\ud800", 1)),
    ("value", "cannot be UTF-8", tensor(f32("\ud800"))),
    ("name-length", "key ''", key("", 1)),
    ("name-length", "65536 bytes, expected 1 to 65535", key("k" * 65_536, 1)),
    ("name-length", "64 bytes, expected 1 to 63", tensor(f32("é" * 32))),
    ("name-length", "tensor ''", tensor(f32(""))),
    ("duplicate-name", "tensor 'a'", tensor(f32("a"))),
    ("dims", "tensor 'w'", tensor(PlannedTensor("w", "F32", (), 4, list))),
    ("dims", "tensor 'w'", tensor(PlannedTensor("w", "F32", (1, 1, 1, 1, 1), 4, list))),
    ("dims", "[0, 8]", tensor(PlannedTensor("w", "F32", (0, 8), 0, list))),
    ("unknown-type", "found U8", tensor(plan("w", bytes(4)))),
    ("unknown-type", "found IQ4_NL_4_4", tensor(plan("w", bytes(144), "IQ4_NL_4_4", (1, 256)))),
    ("row-length", "TQ2_0", tensor(plan("w", bytes(66), "TQ2_0", (2, 128)))),
    ("row-length", "I2_S", tensor(plan("w", bytes(34), "I2_S", (3, 3)))),
    ("size-mismatch", "found 64 bytes, expected 96 bytes", tensor(plan("w", bytes(64), "I2_S", (2, 128)))),
    ("size-mismatch", "found 68 bytes, expected 72", tensor(plan("w", bytes(68), "Q2_0", (2, 128)))),
    ("alignment", "found 12", lambda path: write_gguf(path, {}, [], alignment=12)),
    ("alignment", "found 0", lambda path: write_gguf(path, {}, [], alignment=0)),
    ("alignment", "found 64, expected 32", key("general.alignment", 64)),
    ("alignment", "found 32, expected 64", lambda path: write_gguf(path, {"general.alignment": 32}, [], alignment=64)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "write"), CASES)
def test_what_the_format_cannot_hold(tmp_path: Path, kind: str, says: str, write: Callable[[Path], None]) -> None:
    error = refusal(lambda: write(tmp_path / "m.gguf"))
    assert (type(error), error.kind, error.file) == (OutputError, kind, str(tmp_path / "m.gguf"))
    assert says in str(error)
    assert list(tmp_path.iterdir()) == []


def test_names_of_the_greatest_length_are_written(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {"k" * 65_535: 1}, [f32("n" * 63)])
    assert list(GgufFile(tmp_path / "m.gguf").tensors) == ["n" * 63]
