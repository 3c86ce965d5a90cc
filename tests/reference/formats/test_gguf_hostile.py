"""GGUF files that are refused: each with a kind, with the tensor or key at fault, soon and in little memory."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
import pytest
from gguf_bytes import Tensor, f32
from refusals import frugal, refusal

from tritgold.errors import FormatError
from tritgold.formats.gguf_file import GgufFile

ARCH = g.pair("general.architecture", g.STRING, "bitnet-b1.58")
FLOATS = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)


def opened(tmp_path: Path, content: bytes) -> GgufFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return GgufFile(path)


def error_of(tmp_path: Path, content: bytes) -> FormatError:
    with frugal():
        error = refusal(lambda: opened(tmp_path, content))
    assert isinstance(error, FormatError)
    assert error.file == str(tmp_path / "m.gguf")
    return error


@pytest.mark.parametrize("type_id", [4, 5, 33, 142, 143, 200, 2**32 - 1])
@pytest.mark.parametrize("last", [True, False])
def test_unknown_types_are_named(tmp_path: Path, type_id: int, last: bool) -> None:
    """Bug cases B16, B19: never an alias, never a message about sizes."""
    w = Tensor("blk.0.attn_q.weight", (2, 128), type_id, bytes(64))
    error = error_of(tmp_path, g.gguf([ARCH], [w] if last else [w, f32("v", FLOATS)]))
    assert error.kind == "unknown-type"
    assert f"unknown tensor type {type_id} in tensor 'blk.0.attn_q.weight'" in str(error)
    prism = {142: "it is PrismML's PQ2_0, which also needs", 143: "it is PrismML's PTQ1_0, which also needs"}
    assert (error.hint or "").startswith(prism.get(type_id, ""))
    assert (error.hint is None) is (type_id not in prism)


def type_42(weights: int, block: int, size: int) -> Tensor:
    return Tensor("blk.0.ffn_up.weight", (weights // 5120, 5120), 42, bytes(weights // block * size))


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1])
def test_type_42_of_the_legacy_fork_is_named(tmp_path: Path, before: int, after: int) -> None:
    """Bug case B15: the error names the tensor of type 42, not the next one, wherever it stands."""
    weights = 31_457_280
    assert weights // 64 * 18 - weights // 128 * 34 == 491_520
    head = [f32(f"n{i}", FLOATS) for i in range(before)]
    tail = [f32("output_norm.weight", FLOATS) for _ in range(after)]
    upstream = opened(tmp_path, g.gguf([ARCH], [*head, type_42(weights, 64, 18), *tail]))
    assert upstream.tensors["blk.0.ffn_up.weight"].dtype == "Q2_0"
    error = error_of(tmp_path, g.gguf([ARCH], [*head, type_42(weights, 128, 34), *tail]))
    assert error.kind == "type-42"
    assert "tensor 'blk.0.ffn_up.weight': type 42 fits 34 B/128, not 18 B/64: legacy Prism Q2_0" in str(error)
    assert "output_norm" not in str(error)


@pytest.mark.parametrize("last", [True, False])
def test_type_42_is_read_with_either_block_when_asked(tmp_path: Path, last: bool) -> None:
    """Bug case B15: or read it when asked; and asked wrongly, it is refused as well."""
    tail = [] if last else [f32("v", FLOATS)]
    data = np.random.default_rng(0).bytes(40 * 34)
    path = tmp_path / "m.gguf"
    path.write_bytes(g.gguf([ARCH], [Tensor("w", (1, 5120), 42, data), *tail]))
    error = refusal(lambda: GgufFile(path))
    assert error.kind == "type-42"
    assert error.hint == "read it with q2_0_block=128"
    file = GgufFile(path, q2_0_block=128)
    assert (file.tensors["w"].dtype, file.tensors["w"].data.tobytes()) == ("Q2_0", data)
    path.write_bytes(g.gguf([ARCH], [Tensor("w", (1, 5120), 42, bytes(80 * 18)), *tail]))
    assert GgufFile(path).tensors["w"].data.size == 80 * 18
    error = refusal(lambda: GgufFile(path, q2_0_block=128))
    assert "tensor 'w': type 42 fits 18 B/64, not 34 B/128: ggml's Q2_0" in str(error)


@pytest.mark.parametrize("architecture", ["llama", "bitnet-b1.58", "bitnet", ""])
@pytest.mark.parametrize("last", [True, False])
def test_39_is_what_fits_and_otherwise_what_the_architecture_says(
    tmp_path: Path, architecture: str, last: bool
) -> None:
    """MSB writes Llama3-8B-1.58 in TL2 under architecture llama, where 39 is MXFP4 to ggml."""
    tail = [] if last else [f32("v", FLOATS)]
    pairs = [g.pair("general.architecture", g.STRING, architecture)]
    for name, size in (("TL2", 2080), ("MXFP4", 4352)):
        file = opened(tmp_path, g.gguf(pairs, [Tensor("w", (32, 256), 39, bytes(size)), *tail]))
        assert (file.tensors["w"].dtype, file.tensors["w"].data.size) == (name, size)
    # A gap after it fits neither: the architecture decides.
    gap = opened(tmp_path, g.gguf(pairs, [Tensor("w", (32, 256), 39, bytes(9000)), *tail]))
    assert gap.tensors["w"].dtype == ("TL2" if architecture.startswith("bitnet") else "MXFP4")


@pytest.mark.parametrize(("type_id", "name"), [(36, "IQ4_NL_4_4"), (37, "IQ4_NL_4_8"), (38, "IQ4_NL_8_8")])
def test_a_tensor_of_a_retired_type_is_not_read_as_the_forks(tmp_path: Path, type_id: int, name: str) -> None:
    """4.5 bits a weight under the number of I2_S: files of llama.cpp from the autumn of 2024."""
    error = error_of(tmp_path, g.gguf([ARCH], [Tensor("w", (64, 256), type_id, bytes(512 * 18)), f32("v", FLOATS)]))
    assert error.kind == "unknown-type"
    assert f"unknown tensor type {type_id} in tensor 'w'. by its size it is {name}" in str(error)


@pytest.mark.parametrize("weights", [64, 128, 1024])
def test_a_type_42_that_fits_both_readings_is_upstreams(tmp_path: Path, weights: int) -> None:
    """Padding hides a few bytes: 128 weights are 36 bytes upstream, 34 in the fork, and 64 in the file."""
    small = Tensor("w", (1, weights), 42, bytes(weights // 64 * 18))
    file = opened(tmp_path, g.gguf([ARCH], [small, f32("v", FLOATS)]))
    assert file.tensors["w"].data.size == weights // 64 * 18


@pytest.mark.parametrize("last", [True, False])
def test_a_missing_trailer_is_noticed(tmp_path: Path, last: bool) -> None:
    short = Tensor("w", (2, 128), g.TYPE_I2_S, g.i2_s([1] * 256, 0.37)[:-32])
    error = error_of(tmp_path, g.gguf([ARCH], [short] if last else [short, f32("v", FLOATS)]))
    assert error.kind == ("truncated" if last else "overlap")
    assert "tensor 'w'" in str(error)


def alignment(kind: int, value: Any) -> bytes:
    return g.gguf([g.pair("general.alignment", kind, value)], [f32("a", FLOATS)])


HEAD = b"GGUF" + struct.pack("<I", 3)
TENSOR, ROW = f32("a", FLOATS), FLOATS[0]
CASES: list[tuple[str, str, Callable[[], bytes]]] = [
    ("not-gguf", "magic", lambda: g.gguf(magic=b"GGML")),
    ("not-gguf", "magic", lambda: g.gguf(magic=b"FUGG", version=3)),
    ("not-gguf", "magic", lambda: b"{}" * 20),
    ("big-endian", "big-endian", lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 0)),
    ("big-endian", "big-endian", lambda: b"GGUF" + struct.pack(">IQQ", 2, 0, 0)),
    ("gguf-version", "found 1, expected 2 or 3", lambda: g.gguf([ARCH], [TENSOR], version=1)),
    ("gguf-version", "found 4", lambda: g.gguf([ARCH], [TENSOR], version=4)),
    ("gguf-version", "found 0", lambda: g.gguf([ARCH], [TENSOR], version=0)),
    # bug case B54
    ("alignment", "found 0", lambda: alignment(g.U32, 0)),
    ("alignment", "found -32", lambda: alignment(g.I32, -32)),
    ("alignment", "found 12", lambda: alignment(g.U32, 12)),
    ("alignment", "found 32.0", lambda: alignment(g.F32, 32.0)),
    ("alignment", "found '32'", lambda: alignment(g.STRING, "32")),
    ("alignment", "found True", lambda: alignment(g.BOOL, 1)),
    ("alignment", "general.alignment", lambda: alignment(g.ARRAY, g.array(g.U32, [32]))),
    ("truncated", "tensor 'a'", lambda: alignment(g.U64, 2**62)),
    ("dims", "found 9, expected 1 to 4", lambda: g.gguf([], [TENSOR], dims=9)),
    ("dims", "found 5", lambda: g.gguf([], [Tensor("a", (1, 1, 1, 1, 8), 0, bytes(32))])),
    ("dims", "found 0", lambda: g.gguf([], [TENSOR], dims=0)),
    ("dims", "found 4294967295", lambda: g.gguf([], [TENSOR], dims=2**32 - 1)),
    ("dims", "sizes", lambda: g.gguf([], [Tensor("a", (2**63, 0), 0, b"")])),
    ("truncated", "tensor 'a'", lambda: HEAD + struct.pack("<QQ", 1, 0) + g.info(Tensor("a", (0, 8), 0, b""), 2**40)),
    ("dims", "sizes", lambda: g.gguf([], [Tensor("a", (2**32, 2**31), 0, b"")])),
    ("dims", "sizes", lambda: g.gguf([], [Tensor("a", (2**64 - 1,) * 4, 0, b"")])),
    ("truncated", "found", lambda: g.gguf([], [Tensor("a", (2**31, 2**31), 0, b"")])),
    ("truncated", "tensor 'a'", lambda: HEAD + struct.pack("<QQ", 1, 0) + g.info(TENSOR, 2**63) + bytes(64)),
    ("count", "key count", lambda: g.gguf([ARCH], [TENSOR], pair_count=2**60)),
    ("count", "key count", lambda: g.gguf([ARCH], [TENSOR], pair_count=2**64 - 1)),
    ("count", "tensor count", lambda: g.gguf([ARCH], [TENSOR], tensor_count=2**60)),
    ("count", "tensor count", lambda: g.gguf([ARCH], [TENSOR], tensor_count=2**63)),
    ("truncated", "", lambda: g.gguf([ARCH], [TENSOR], pair_count=2)[:-100]),
    ("truncated", "metadata key", lambda: HEAD + struct.pack("<QQQ", 0, 1, 2**40) + bytes(99)),
    ("truncated", "metadata key", lambda: HEAD + struct.pack("<QQQ", 0, 1, 2**64 - 1) + bytes(99)),
    ("truncated", "tensor name", lambda: HEAD + struct.pack("<QQQ", 1, 0, 2**40) + bytes(99)),
    ("truncated", "value of 'k'", lambda: g.gguf([g.string("k") + struct.pack("<IQ", g.STRING, 2**40)])),
    ("count", "'k'", lambda: g.gguf([g.pair("k", g.ARRAY, g.array(g.STRING, [], 2**60))])),
    ("truncated", "'k'", lambda: g.gguf([g.pair("k", g.ARRAY, g.array(g.F64, [], 2**60))])),
    ("truncated", "'k'", lambda: g.gguf([g.pair("k", g.ARRAY, g.array(g.U8, [], 2**64 - 1))])),
    ("truncated", "'k'", lambda: g.gguf([g.pair("k", g.ARRAY, g.array(g.STRING, ["a"], 2) + b"\xff" * 7)] * 2)),
    ("value-type", "found 13", lambda: g.gguf([g.string("k") + struct.pack("<IQ", 13, 0)])),
    ("value-type", "found 4294967295", lambda: g.gguf([g.string("k") + struct.pack("<IQ", 2**32 - 1, 0)])),
    ("value-type", "found 13", lambda: g.gguf([g.pair("k", g.ARRAY, struct.pack("<IQQ", 13, 1, 0))])),
    ("value-type", "found 9", lambda: g.gguf([g.pair("k", g.ARRAY, struct.pack("<IQ", 9, 1) + g.array(g.U8, [1]))])),
    ("value", "found 2, expected 0 or 1", lambda: g.gguf([g.pair("k", g.BOOL, b"\x02")])),
    ("value", "found 255", lambda: g.gguf([g.pair("k", g.BOOL, b"\xff")])),
    ("value", "found 2", lambda: g.gguf([g.pair("k", g.ARRAY, struct.pack("<IQ", g.BOOL, 3) + b"\x00\x01\x02")])),
    ("key-utf8", "metadata key at byte 32", lambda: g.gguf([g.pair(b"\xff\xfe", g.U8, 1)])),
    ("key-utf8", "value of 'k'", lambda: g.gguf([g.pair("k", g.STRING, b"a\xc3")])),
    ("key-utf8", "value of 'k'", lambda: g.gguf([g.pair("k", g.STRING, b"\xed\xa0\x80")])),
    ("key-utf8", "item of 'k'", lambda: g.gguf([g.pair("k", g.ARRAY, struct.pack("<IQ", 8, 1) + g.string(b"\x80"))])),
    ("key-utf8", "tensor name", lambda: g.gguf([], [Tensor(b"\xff", (4,), 0, bytes(16))])),
    ("duplicate-name", "key 'k'", lambda: g.gguf([g.pair("k", g.U8, 1), ARCH, g.pair("k", g.U8, 1)])),
    ("duplicate-name", "tensor 'a'", lambda: g.gguf([], [TENSOR, f32("b", FLOATS), TENSOR])),
    ("misaligned", "found 8, expected 32", lambda: g.gguf([], [Tensor("a", (4,), 0, bytes(16), 8)])),
    ("misaligned", "tensor 'b'", lambda: g.gguf([], [f32("a", FLOATS[0]), f32("b", FLOATS[1], 36)], alignment=4)),
    ("misaligned", "expected 64", lambda: g.gguf(
        [g.pair("general.alignment", g.U32, 64)], [f32("a", FLOATS[0]), f32("b", FLOATS[1], 32)], alignment=32)),
    ("overlap", "tensor 'a'", lambda: g.gguf([], [f32("a", FLOATS, 0), f32("b", FLOATS, 64)])),
    ("overlap", "tensor 'b'", lambda: g.gguf([], [f32("a", FLOATS[0], 0), f32("b", FLOATS, 32), f32("c", FLOATS, 96)])),
    ("overlap", "tensor 'b'", lambda: g.gguf([], [f32("c", FLOATS, 192), f32("b", FLOATS, 128), f32("a", ROW, 0)])),
    ("overlap", "'a' and 'b': share their bytes", lambda: g.gguf([], [f32("a", FLOATS, 0), f32("b", FLOATS, 0)])),
    ("row-length", "found 200, expected a multiple of 256", lambda: g.gguf([], [Tensor("a", (4, 200), 35, bytes(99))])),
    ("row-length", "found 33, expected a multiple of 32", lambda: g.gguf([], [Tensor("a", (1, 33), 8, bytes(64))])),
    ("row-length", "I2_S", lambda: g.gguf([ARCH], [Tensor("a", (3, 3), 36, bytes(64))])),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "content"), CASES)
def test_malformed_files(tmp_path: Path, kind: str, says: str, content: Callable[[], bytes]) -> None:
    error = error_of(tmp_path, content())
    assert error.kind == kind
    assert says in str(error)


def test_a_size_may_be_0_and_the_tensor_has_no_bytes(tmp_path: Path) -> None:
    """As in ggml, which refuses negative sizes alone: it begins where the next tensor does."""
    empty = [Tensor("none", (0, 8), 0, b""), Tensor("nor here", (256, 0), 35, b"")]
    file = opened(tmp_path, g.gguf([ARCH], [empty[0], f32("a", FLOATS), empty[1]]))
    assert np.array_equal(file.tensors["a"].floats(), FLOATS)
    assert [file.tensors[t.name].shape for t in empty] == [(0, 8), (256, 0)]
    assert [file.tensors[t.name].data.size for t in empty] == [0, 0]
    assert file.tensors["none"].floats().shape == (0, 8)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202e", "x" * 60_000, "x" * 70_000])
def test_hostile_names_are_printed_harmlessly(tmp_path: Path, text: str) -> None:
    error_of(tmp_path, g.gguf([g.pair(text, g.BOOL, b"\x02")]))
    error_of(tmp_path, g.gguf([g.string(text) + struct.pack("<I", 77)]))
    error_of(tmp_path, g.gguf([], [Tensor(text, (4,), 200, bytes(16))]))
    error_of(tmp_path, g.gguf([], [f32(text, FLOATS, 0), f32("b", FLOATS, 32)]))
    error_of(tmp_path, g.gguf([g.pair("general.alignment", g.STRING, text)]))


def test_many_names_with_a_late_duplicate_are_refused_soon(tmp_path: Path) -> None:
    names = [f"{i}" for i in range(6_000)]
    infos = b"".join(g.info(Tensor(n, (8,), 0, b""), 32 * i) for i, n in enumerate([*names, names[-1]]))
    assert error_of(tmp_path, HEAD + struct.pack("<QQ", 6_001, 0) + infos).kind == "duplicate-name"
    infos = b"".join(g.info(Tensor(n, (8,), 0, b""), 32 * min(i, 5_998)) for i, n in enumerate(names))
    content = HEAD + struct.pack("<QQ", 6_000, 0) + infos
    content += bytes(-len(content) % 32) + bytes(32 * 6_000)
    assert error_of(tmp_path, content).kind == "overlap"


def test_a_missing_file_a_folder_and_an_empty_file(tmp_path: Path) -> None:
    assert refusal(lambda: GgufFile(tmp_path / "none.gguf")).kind == "unreadable"
    assert refusal(lambda: GgufFile(tmp_path)).kind == "unreadable"
    assert error_of(tmp_path, b"").kind == "truncated"


def test_every_kind_that_the_reader_promises_is_seen_here() -> None:
    """And none besides: a kind in no promise is one that nobody can rely on."""
    assert GgufFile.__doc__ is not None
    promised = {w.strip(".`") for w in GgufFile.__doc__.split("the kinds are")[1].replace(",", " ").split()}
    elsewhere = {"unknown-type", "type-42"}
    assert {kind for kind, _, _ in CASES} | elsewhere == promised
