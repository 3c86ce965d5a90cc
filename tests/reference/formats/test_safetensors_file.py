"""safetensors: files of the reference library read here, and every way to be wrong."""

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from refusals import frugal, refusal
from safetensors.numpy import save_file

from tritgold.errors import FormatError
from tritgold.formats.safetensors_file import SafetensorsFile

RNG = np.random.default_rng(0)
ARRAYS = {
    "bf16": RNG.normal(size=(3, 5)).astype(ml_dtypes.bfloat16),
    "f16": RNG.normal(size=(4, 2)).astype(np.float16),
    "f32": RNG.normal(size=(2, 3, 4)).astype(np.float32),
    "u8": RNG.integers(0, 256, (7, 3), np.uint8),
    "i8": RNG.integers(-128, 128, 9, np.int8),
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def header_and_data(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file from a header, as JSON or as raw bytes; ``length`` is the header length it claims."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def error_of(tmp_path: Path, content: bytes) -> FormatError:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with frugal():
        error = refusal(lambda: SafetensorsFile(path))
    assert isinstance(error, FormatError)
    assert error.file == str(path)
    return error


# ---- right files -------------------------------------------------------------------------------------------------


def test_files_of_the_library_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(ARRAYS, path, metadata={"format": "pt"})
    read = SafetensorsFile(path)
    assert read.metadata == {"format": "pt"}
    assert set(read.tensors) == set(ARRAYS)
    raw = path.read_bytes()
    for name, array in ARRAYS.items():
        tensor = read.tensors[name]
        assert (tensor.name, tensor.shape, tensor.file) == (name, array.shape, path)
        assert tensor.data.tobytes() == array.tobytes()
        assert raw[tensor.offset :].startswith(array.tobytes())
        if array.dtype.kind in "fV":
            wide = tensor.floats()
            assert wide.dtype == np.float32
            assert np.array_equal(wide, array.astype(np.float32))
    assert read.tensors["bf16"].dtype == "BF16"


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_rows_are_those_asked_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.safetensors"
    save_file(ARRAYS, path)
    matrix, expected = SafetensorsFile(path).tensors[name], ARRAYS[name].astype(np.float32)
    for index in (slice(1, 3), slice(2, 99), slice(99, 100), np.array([2, 0, 2])):
        assert np.array_equal(matrix.rows(index), expected[index])


def test_integers_are_not_read_as_floats(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(ARRAYS, path)
    assert refusal(SafetensorsFile(path).tensors["u8"].floats).kind == "weight-dtype"


def test_tensors_come_in_the_order_of_the_file_not_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(header_and_data({"b": entry(offsets=[4, 8]), "a": entry(offsets=[0, 4])}, b"aaaabbbb"))
    tensors = SafetensorsFile(path).tensors
    assert list(tensors) == ["a", "b"]
    assert tensors["b"].data.tobytes() == b"bbbb"


# ---- wrong files -------------------------------------------------------------------------------------------------

ONE = entry()
TWO = entry(offsets=(4, 8))
NINE_FIXTURES = {
    "trailing-bytes": header_and_data({"a": ONE}, bytes(5)),
    "overlap": header_and_data({"a": ONE, "b": entry(offsets=(2, 6))}, bytes(6)),
    "gap": header_and_data({"a": ONE, "b": entry(offsets=(5, 9))}, bytes(9)),
    "offsets-order": header_and_data({"a": entry(offsets=(4, 0))}, bytes(4)),
    "size-mismatch": header_and_data({"a": entry(shape=(2,))}, bytes(4)),
    "unknown-dtype": header_and_data({"a": entry("F33")}, bytes(4)),
    "header-utf8": header_and_data(b'{"\xff":1}'),
    "header-type": header_and_data([{"a": ONE}], bytes(4)),
    "duplicate-name": header_and_data(b'{"a":%b,"a":%b}' % ((json.dumps(ONE).encode(),) * 2), bytes(4)),
}


@pytest.mark.parametrize("kind", NINE_FIXTURES)
def test_nine_faults_have_nine_kinds(tmp_path: Path, kind: str) -> None:
    """Bug case B58: each of these is accepted by one reader in the field and refused by another."""
    assert error_of(tmp_path, NINE_FIXTURES[kind]).kind == kind


def test_the_same_file_without_a_fault_loads(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(header_and_data({"a": ONE, "b": TWO}, bytes(8)))
    assert list(SafetensorsFile(path).tensors) == ["a", "b"]


HUGE = 2**60
MALFORMED = {
    "header-length": [
        header_and_data({}, length=HUGE),
        header_and_data({}, length=2**64 - 1),
        header_and_data({}, length=100_000_001),
    ],
    "truncated": [
        b"",
        b"\x02",
        bytes(7),
        header_and_data({}, length=3),
        header_and_data({"a": ONE}, bytes(3)),
        header_and_data({"a": ONE, "b": TWO}, bytes(7)),
        header_and_data({"a": entry("U8", [HUGE], [0, HUGE])}, bytes(4)),
    ],
    "header-json": [
        header_and_data(b""),
        header_and_data(b"{"),
        header_and_data(b"{}{}"),
        header_and_data(b"[" * 100_000),
        header_and_data(b'{"a":' * 100_000),
        header_and_data(b'{"a":[0,' + b"9" * 5000 + b"]}"),
        header_and_data(b"{'a':1}"),
        header_and_data(b"\x00\x00"),
        header_and_data(b"\xef\xbb\xbf{}"),
    ],
    "header-type": [header_and_data(b"null"), header_and_data(b"1"), header_and_data(b'"a"'), header_and_data(b"NaN")],
    "entry": [
        header_and_data({"a": value}, bytes(4))
        for value in (
            None,
            [],
            "F32",
            {},
            {**ONE, "more": 1},
            {"dtype": "F32", "shape": [1]},
            entry(shape=1),
            entry(shape=None),
            entry(shape=[True]),
            entry(shape=[1.0]),
            entry(shape=[-1], offsets=[0, 4]),
            entry(shape=["1"]),
            entry(shape=[[1]]),
            entry(shape={"0": 1}),
            entry(shape=[float("nan")]),
            entry(shape=[2**63]),
            entry(shape=[10**400]),
            entry(shape=[1] * 1000),
            entry(offsets=[0]),
            entry(offsets=[0, 4, 8]),
            entry(offsets=[False, 4]),
            entry(offsets=[-4, 0]),
            entry(offsets=[0.0, 4.0]),
            entry(offsets=[0, 1e999]),
            entry(offsets=[0, 2**64]),
        )
    ]
    + [header_and_data({"__metadata__": m}) for m in (None, [], "x", {"a": 1}, {"a": None}, {"a": {}}, {"a": [""]})],
    "unknown-dtype": [header_and_data({"a": entry(d)}, bytes(4)) for d in (None, 1, True, [], {}, "f32", "F32 ", "")],
    "size-mismatch": [
        header_and_data({"a": entry(shape=[])}, bytes(8)).replace(b"[0, 4]", b"[0, 8]"),
        header_and_data({"a": entry(shape=[0])}, bytes(4)),
        header_and_data({"a": entry(shape=[2**62, 2**62, 2**62])}, bytes(4)),
        header_and_data({"a": entry(shape=[2**32, 2**32], offsets=[0, 0])}),
    ],
    "overlap": [
        header_and_data({"a": ONE, "b": ONE}, bytes(4)),
        header_and_data({"a": ONE, "b": entry(offsets=(0, 4))}, bytes(8)),
    ],
    "gap": [header_and_data({"a": TWO}, bytes(8)), header_and_data({"a": entry(shape=[0], offsets=[3, 3])})],
    "trailing-bytes": [header_and_data({}, b"x"), header_and_data({"a": entry(shape=[0], offsets=[0, 0])}, b"x")],
    "duplicate-name": [
        header_and_data(b'{"__metadata__":{"a":"1","a":"2"}}'),
        header_and_data(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        header_and_data(b'{"a":1,"\\u0061":2}'),
    ],
}


@pytest.mark.parametrize(("kind", "content"), [(kind, c) for kind, cs in MALFORMED.items() for c in cs])
def test_malformed_headers(tmp_path: Path, kind: str, content: bytes) -> None:
    assert error_of(tmp_path, content).kind == kind


def test_the_error_names_the_tensor(tmp_path: Path) -> None:
    header = {"first": ONE, "model.layers.0.mlp.up_proj.weight": entry(offsets=(2, 6))}
    text = str(error_of(tmp_path, header_and_data(header, bytes(6))))
    assert "tensor 'model.layers.0.mlp.up_proj.weight'" in text
    assert "found 2, expected 4" in text


@pytest.mark.parametrize(
    "name",
    ["\ud800", "\x1b[2J", "a\nb", "\u202e", "x" * 100_000],
    ids=["surrogate", "escape", "newline", "rtl", "long"],
)
def test_hostile_names_are_printed_harmlessly(tmp_path: Path, name: str) -> None:
    error_of(tmp_path, header_and_data({name: entry("F33")}, bytes(4)))
    error_of(tmp_path, header_and_data({"a": entry(name)}, bytes(4)))
    error_of(tmp_path, header_and_data({"a": {**ONE, name: 0}}, bytes(4)))
    error_of(tmp_path, header_and_data({"a": entry(shape=[name])}, bytes(4)))


@pytest.mark.parametrize("content", [
    # 200,000 names and the duplicate at the end: a search that counts each name takes hours.
    header_and_data(("{" + ",".join(f'"{i}":0' for i in range(100_000)) + ',"99999":0}').encode()),
    # A product of many large sizes is a number of megabytes.
    header_and_data({"a": entry(shape=[2**62] * 50_000)}, bytes(4)),
], ids=["names", "sizes"])  # fmt: skip
def test_large_headers_are_refused_soon(tmp_path: Path, content: bytes) -> None:
    error_of(tmp_path, content)


def test_a_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    assert refusal(lambda: SafetensorsFile(tmp_path / "none.safetensors")).kind == "unreadable"


MANY = [
    b'{"a":[' + b"[]," * (1 << 19) + b"0]}",
    b"[" + b"{}," * (1 << 19) + b"0]",
    b'{"__metadata__":{' + b",".join(b'"%d":""' % i for i in range(1 << 19)) + b"}}",
]


@pytest.mark.parametrize("header", MANY, ids=["lists", "objects", "metadata"])
def test_headers_of_endlessly_many_items_are_refused_unparsed(tmp_path: Path, header: bytes) -> None:
    """96 MB of them took 2.5 GB and 12 seconds."""
    error = error_of(tmp_path, header_and_data(header))
    assert error.kind == "header-length"
    assert "header has too many items" in str(error)


def test_a_file_of_many_tensors_is_read(tmp_path: Path) -> None:
    count = 60_000
    header = {f"t{i}": entry("U8", [1, 1], [i, i + 1]) for i in range(count)}
    (tmp_path / "m.safetensors").write_bytes(header_and_data(header, bytes(count)))
    assert len(SafetensorsFile(tmp_path / "m.safetensors").tensors) == count
