"""L0: files and packed bytes that must be refused, each for one reason, with the kind of the failure.

A reader that fails for another reason did not find this one, and might accept a file that has only this problem.
"""

import json
import struct
from collections.abc import Iterator

import numpy as np

from tritgold.formats.packings import packing
from tritgold_conformance.case_vectors import container_bytes as c
from tritgold_conformance.case_vectors.cases_files import LAYOUTS, packed, unpack
from tritgold_conformance.case_vectors.container_bytes import Tensor, array, entry, gguf, pair, safetensors
from tritgold_conformance.case_vectors.draft import Draft, Group, floats, trits

ONE, TWO = entry(), entry(offsets=(4, 8))
MATRIX = floats(7000, (6, 8))
ROW = MATRIX[0]
ARCH = pair("general.architecture", c.STRING, "bitnet-b1.58")
HUGE = 2**60
FLOATS = Tensor.floats("a", MATRIX)
# A byte that is not a valid trit code, for formats where it is not ff.
_NO_TRIT = {"torchao": 0x02, "gpu_int2": 0xA8, "tl1": 0x49, "tl1-bm64": 0x49, "tl2": 0x0E, "tl2-bm32": 0x0E}
_TRAILER = 32


def groups() -> Iterator[Group]:
    """malformed/packed, malformed/safetensors, malformed/gguf; and valid files that some readers fail to read."""
    yield Group("malformed/packed", "files", "Packed bytes that do not hold a matrix of trits.", [*_packed()])
    for container, about, broken in (("safetensors", "safetensors", _safetensors()), ("gguf", "GGUF", _gguf())):
        drafts = [_file(container, name, f"{kind}: {name.replace('-', ' ')}", raw, kind) for name, kind, raw in broken]
        yield Group(f"malformed/{container}", "files", f"{about} files to be refused.", drafts)
    yield Group("files/containers", "files", "Containers that are right: tensors by name, bit for bit.", [*_sound()])


def _file(container: str, name: str, why: str, raw: bytes, refused: str | None = None) -> Draft:
    return Draft(name, "open", why, {"container": container}, refused=refused, file=(f"{name}.{container}", raw))


# ---- packed bytes ------------------------------------------------------------------------------------------------


def _packed() -> Iterator[Draft]:
    for folder, (name, options, shapes, how) in LAYOUTS.items():
        layout, shape = packing(name, **options), shapes[-1]
        matrix = trits(7100, shape)
        data = packed(folder, np.where(matrix == 0, np.int8(1), matrix) if name == "q1_0" else matrix, 510)
        why = "a byte is missing at the end: nothing may be read in its place"
        yield unpack(folder, f"{folder}-short", why, data[:-1], shape, refused="packed-length")
        yield unpack(folder, f"{folder}-long", "a byte too many", data + b"\0", shape, refused="packed-length")
        if layout.invalid_kind != "not-ternary" and name not in ("tq1_0", "q1_0", "iq1_bn"):
            dirty = bytearray(data)
            dirty[layout.byte_of(0, 0, shape)] = _NO_TRIT.get(folder, 0xFF)
            why = f"{layout.invalid_code} is not the code of a trit; engines read it as 0, +1 or +2"
            yield unpack(folder, f"{folder}-no-trit", why, bytes(dirty), shape, refused=layout.invalid_kind)
        if how == "one" and name not in ("f32", "f16", "bf16"):
            yield from _trailers(folder, data, shape)
        if how == "blocks":
            yield from _block_scales(folder, data, shape)
    yield from _floats_that_are_no_trits()
    yield unpack("i2_s", "i2_s-shape", "100 weights are not a whole block of 128", bytes(57), (1, 100),
                 refused="packing-shape")  # fmt: skip
    yield unpack("tq2_0", "tq2_0-shape", "rows of 3200 are not whole blocks of 256", bytes(66 * 25), (2, 3200),
                 refused="packing-shape")  # fmt: skip


def _trailers(folder: str, data: bytes, shape: tuple[int, int]) -> Iterator[Draft]:
    yield unpack(folder, f"{folder}-no-trailer", "the payload is whole, its trailer with the scale is missing",
                 data[:-_TRAILER], shape, refused="trailer-missing")  # fmt: skip
    for word, value in (("nan", float("nan")), ("inf", float("inf")), ("minus-inf", float("-inf"))):
        raw = data[:-_TRAILER] + struct.pack("<f", value) + data[4 - _TRAILER :]
        yield unpack(folder, f"{folder}-scale-{word}", f"a scale of {value}", raw, shape, refused="scale-non-finite")


def _block_scales(folder: str, data: bytes, shape: tuple[int, int]) -> Iterator[Draft]:
    """NaN in the scale of the last block, or of the last row if each row has a scale."""
    layout = packing(LAYOUTS[folder][0], **LAYOUTS[folder][1])
    size = len(data) // int(np.prod(layout.scales(data, shape).shape))
    nan = struct.pack("<f" if folder.startswith("iq2") else "<e", float("nan"))
    at = len(data) - (2 if folder.startswith("tq") else 4 * size if folder == "iq2_bn_r4" else size)
    raw = data[:at] + nan + data[at + len(nan) :]
    yield unpack(folder, f"{folder}-scale-nan", "the scale of the last block is NaN", raw, shape,
                 refused="scale-non-finite")  # fmt: skip


def _floats_that_are_no_trits() -> Iterator[Draft]:
    for folder, word in (("f32", "<f4"), ("f16", "<f2")):
        two = np.array([[0.5, -0.5, 0.25]], word).tobytes()
        yield unpack(folder, f"{folder}-two-magnitudes", "ordinary weights, not one magnitude", two, (1, 3),
                     refused="not-ternary")  # fmt: skip
        wild = np.array([[0.5, np.inf, 0]], word).tobytes()
        yield unpack(folder, f"{folder}-infinite", "a weight of infinity", wild, (1, 3), refused="weight-non-finite")


# ---- safetensors -------------------------------------------------------------------------------------------------


def _safetensors() -> Iterator[tuple[str, str, bytes]]:
    """(name, kind of failure, bytes). The same file without a problem is in files/containers."""
    yield "empty", "truncated", b""
    yield "seven-bytes", "truncated", bytes(7)
    yield "ends-in-the-header", "truncated", safetensors({"a": ONE}, length=99)
    yield "ends-in-the-data", "truncated", safetensors({"a": ONE, "b": TWO}, bytes(7))
    yield "shape-beyond-the-file", "truncated", safetensors({"a": entry("U8", [HUGE], [0, HUGE])}, bytes(4))
    yield "header-of-2-to-60", "header-length", safetensors({}, length=HUGE)
    yield "header-beyond-100-mb", "header-length", safetensors({}, length=100_000_001)
    yield "not-utf-8", "header-utf8", safetensors(b'{"\xff":1}')
    yield "no-json", "header-json", safetensors(b'{"a":')
    yield "a-list", "header-type", safetensors([{"a": ONE}], bytes(4))
    twice = (json.dumps(ONE).encode(),) * 2
    yield "name-twice", "duplicate-name", safetensors(b'{"a":%b,"a":%b}' % twice, bytes(4))
    yield "no-shape", "entry", safetensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4))
    yield "negative-size", "entry", safetensors({"a": entry(shape=[-1])}, bytes(4))
    yield "unknown-dtype", "unknown-dtype", safetensors({"a": entry("F33")}, bytes(4))
    yield "wrong-dtype", "size-mismatch", safetensors({"a": entry("F64")}, bytes(4))
    yield "wrong-shape", "size-mismatch", safetensors({"a": entry(shape=[2])}, bytes(4))
    yield "begins-after-its-end", "offsets-order", safetensors({"a": entry(offsets=[4, 0])}, bytes(4))
    yield "overlap", "overlap", safetensors({"a": ONE, "b": entry(offsets=[2, 6])}, bytes(6))
    yield "gap", "gap", safetensors({"a": ONE, "b": entry(offsets=[5, 9])}, bytes(9))
    yield "trailing-bytes", "trailing-bytes", safetensors({"a": ONE}, bytes(5))


# ---- GGUF --------------------------------------------------------------------------------------------------------


def _aligned_by(kind: int, value: object) -> bytes:
    return gguf([pair("general.alignment", kind, value)], [FLOATS])


def _gguf() -> Iterator[tuple[str, str, bytes]]:
    """(name, kind of failure, bytes)."""
    head = b"GGUF" + struct.pack("<I", 3)
    i2_s = packing("i2_s").pack(trits(7200, (2, 128)), 0.37)
    yield "empty", "truncated", b""
    yield "no-magic", "not-gguf", gguf(magic=b"GGML")
    yield "big-endian", "big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "version-1", "gguf-version", gguf([ARCH], [FLOATS], version=1)
    yield "version-4", "gguf-version", gguf([ARCH], [FLOATS], version=4)
    yield "keys-2-to-60", "count", gguf([ARCH], [FLOATS], pair_count=HUGE)
    yield "tensors-2-to-60", "count", gguf([ARCH], [FLOATS], tensor_count=HUGE)
    yield "array-2-to-60", "count", gguf([pair("k", c.ARRAY, array(c.STRING, [], HUGE))])
    yield "name-2-to-40", "truncated", head + struct.pack("<QQQ", 1, 0, 2**40) + bytes(99)
    yield "ends-in-the-keys", "truncated", gguf([ARCH], [FLOATS])[:60]
    yield "ends-in-the-data", "truncated", gguf([ARCH], [FLOATS])[:-1]
    yield "no-trailer-at-the-end", "truncated", gguf([ARCH], [Tensor("w", (2, 128), 36, i2_s[:-_TRAILER])])
    yield "no-trailer-inside", "overlap", gguf([ARCH], [Tensor("w", (2, 128), 36, i2_s[:-_TRAILER]), FLOATS])
    yield "alignment-0", "alignment", _aligned_by(c.U32, 0)
    yield "alignment-minus-32", "alignment", _aligned_by(c.I32, -32)
    yield "alignment-12", "alignment", _aligned_by(c.U32, 12)
    yield "alignment-a-float", "alignment", _aligned_by(c.F32, 32.0)
    yield "dims-0", "dims", gguf([], [FLOATS], dims=0)
    yield "dims-9", "dims", gguf([], [FLOATS], dims=9)
    yield "size-2-to-64", "dims", gguf([], [Tensor("a", (2**32, 2**32), 0, b"")])
    yield "value-type-13", "value-type", gguf([c.string("k") + struct.pack("<IQ", 13, 0)])
    yield "bool-2", "value", gguf([pair("k", c.BOOL, b"\x02")])
    yield "key-not-utf-8", "key-utf8", gguf([pair(b"\xff\xfe", c.U8, 1)])
    yield "key-twice", "duplicate-name", gguf([pair("k", c.U8, 1), ARCH, pair("k", c.U8, 1)])
    yield "tensor-twice", "duplicate-name", gguf([], [FLOATS, Tensor.floats("b", MATRIX), FLOATS])
    yield "offset-8", "misaligned", gguf([], [Tensor("a", (4,), 0, bytes(16), 8)])
    yield "overlap", "overlap", gguf([], [Tensor.floats("a", MATRIX, 0), Tensor.floats("b", MATRIX, 64)])
    yield "one-place-for-two", "overlap", gguf([], [Tensor.floats("a", MATRIX, 0), Tensor.floats("b", MATRIX, 0)])
    yield "rows-of-200-in-tq2", "row-length", gguf([], [Tensor("a", (4, 200), 35, bytes(99))])
    for number in (37, 38, 142, 200):
        size = 288 if number in (37, 38) else 64
        yield f"type-{number}", "unknown-type", gguf([ARCH], [Tensor("w", (2, 256), number, bytes(size)), FLOATS])
    legacy = Tensor("w", (1, 5120), 42, bytes(40 * 34))
    yield "type-42-of-the-older-fork", "type-42", gguf([ARCH], [legacy, FLOATS])


# ---- sound files -------------------------------------------------------------------------------------------------


def _sound() -> Iterator[Draft]:
    data = MATRIX.tobytes()
    header = {"b": entry(shape=[4, 8], offsets=[64, 192]), "a": entry(shape=[2, 8], offsets=[0, 64])}
    yield _file("safetensors", "order-of-the-data", "the header names them in another order than they lie",
                safetensors(header, data))  # fmt: skip
    whole = {"a": entry("BF16", [3, 2], [0, 12]), "h": entry("F16", [2], [12, 16]), "z": entry("F32", [0, 4], [16, 16])}
    halves = np.array([1.5, -2.25, 0, 3e38, -1e-38, 2], "<f4").view("<u2")[1::2].tobytes()
    yield _file("safetensors", "half-floats", "bf16 and f16 are widened exactly; a tensor may be empty",
                safetensors(whole, halves + np.array([0.1, -65504], "<f2").tobytes()))  # fmt: skip
    i2_s = packing("i2_s").pack(trits(7201, (2, 128)), 0.37)
    tensors = [
        Tensor.floats("second", MATRIX, 512),
        Tensor("blk.0.attn_q.weight", (2, 128), 36, i2_s, 128),
        Tensor.floats("first", ROW, 0),
    ]
    strings = pair("tokenizer.ggml.tokens", c.ARRAY, array(c.STRING, [f"token {i}" for i in range(5)]))
    raw = gguf([strings, ARCH, pair("general.alignment", c.U32, 64)], tensors, alignment=64)
    yield _file("gguf", "order-of-the-offsets",
                "strings ahead; data in another order than the infos, with gaps; 36 is I2_S", raw)  # fmt: skip
    yield _file("gguf", "version-2", "version 2 is read like 3", gguf([ARCH], [FLOATS], version=2))
    wide = [Tensor.floats("first", ROW), Tensor.floats("second", MATRIX)]
    raw = gguf([ARCH, pair("general.alignment", c.U32, 24)], wide, alignment=24)
    yield _file("gguf", "alignment-24", "any multiple of 8 is an alignment, a power of two or not", raw)
    raw = gguf([ARCH], [Tensor("none", (0, 8), 0, b""), FLOATS])
    yield _file("gguf", "a-size-of-0", "a size may be 0: no bytes, and the next tensor begins at the same offset", raw)
