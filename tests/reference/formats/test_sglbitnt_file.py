"""SGLBITNT: both dialects read and written byte for byte, every prefix and every lie refused."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import sglbitnt_bytes as s
from plans import assert_nothing_is_left, plan
from refusals import frugal, refusal
from sglbitnt_bytes import Tensor, sglbitnt

from tritgold.errors import FormatError, OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.sglbitnt_file import Dialect, SglbitntFile, is_sglbitnt, write_sglbitnt

CONFIG = {"architectures": ["BitNetForCausalLM"], "hidden_size": 128, "rms_norm_eps": 1e-05, "name": "é"}
RNG = np.random.default_rng(158)
TRITS = RNG.integers(-1, 2, (3, 256), np.int8)
FLOATS = RNG.normal(size=(5, 4)).astype(np.float32)
TENSORS = [
    s.f32("model.embed_tokens.weight", FLOATS),
    s.packed("model.layers.0.self_attn.q_proj.weight", TRITS, 1.2109375),
    Tensor("half", s.F16, (4,), FLOATS[0].astype("<f2").tobytes()),
    Tensor("upper", s.BF16, (2, 1, 3), b"\x80\x3f" * 6),
    s.packed("model.layers.0.mlp.up_proj.weight", -TRITS, -0.5),
    s.f32("scalar", np.array(0.75, np.float32)),
]
ALWAYS = [False, True]


def opened(tmp_path: Path, content: bytes) -> SglbitntFile:
    path = tmp_path / "m.bin"
    path.write_bytes(content)
    return SglbitntFile(path)


def error_of(tmp_path: Path, content: bytes) -> FormatError:
    with frugal():
        error = refusal(lambda: opened(tmp_path, content))
    assert isinstance(error, FormatError)
    assert error.file == str(tmp_path / "m.bin")
    return error


# ---- right files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("always", ALWAYS)
@pytest.mark.parametrize("first", range(len(TENSORS)))
def test_files_read_as_they_were_written(tmp_path: Path, always: bool, first: int) -> None:
    """Whichever tensor comes first: the dialect is settled by the first one without a scale."""
    tensors = TENSORS[first:] + TENSORS[:first]
    raw = sglbitnt(CONFIG, tensors, always=always)
    file = opened(tmp_path, raw)
    assert file.dialect == ("always" if always else "optional")
    assert file.config == CONFIG
    assert list(file.tensors) == [t.name for t in tensors]
    assert file.scales == {
        "model.layers.0.self_attn.q_proj.weight": np.float32(1.2109375),
        "model.layers.0.mlp.up_proj.weight": np.float32(-0.5),
    }
    for theirs in tensors:
        tensor = file.tensors[str(theirs.name)]
        assert (tensor.name, tensor.shape, tensor.file) == (theirs.name, theirs.shape, tmp_path / "m.bin")
        assert tensor.dtype == ("U8", "F32", "F16", "BF16")[theirs.dtype]
        assert tensor.data.tobytes() == theirs.data == raw[tensor.offset : tensor.offset + len(theirs.data)]
    assert np.array_equal(file.tensors["model.embed_tokens.weight"].floats(), FLOATS)
    assert file.tensors["upper"].floats().tolist() == [[[1.0] * 3]] * 2
    assert file.tensors["scalar"].floats() == np.float32(0.75)


@pytest.mark.parametrize("always", ALWAYS)
def test_without_an_unscaled_tensor_the_dialects_are_one(tmp_path: Path, always: bool) -> None:
    file = opened(tmp_path, sglbitnt(CONFIG, [TENSORS[1], TENSORS[4]], always=always))
    assert (file.dialect, len(file.scales)) == (None, 2)
    assert opened(tmp_path, sglbitnt({}, [])).tensors == {}


@pytest.mark.parametrize("dummy", [0.0, 1.0, float("nan"), 3e-45])
def test_the_dummy_of_the_second_dialect_may_be_anything(tmp_path: Path, dummy: float) -> None:
    tensor = Tensor("a", s.U8, (2,), b"\1\2", dummy=dummy)
    file = opened(tmp_path, sglbitnt({}, [tensor, tensor.__class__("b", s.U8, (3,), b"\3\4\5")], always=True))
    assert (file.dialect, file.scales) == ("always", {})
    assert file.tensors["b"].data.tobytes() == b"\3\4\5"


def test_data_that_looks_like_a_length_does_not_change_the_dialect(tmp_path: Path) -> None:
    """Four bytes on, the first dialect has half its length and the beginning of its data."""
    data = struct.pack("<II", 8, 0)  # 8 bytes: the upper half of the length is 0, then comes an 8
    file = opened(tmp_path, sglbitnt({}, [Tensor("a", s.U8, (8,), data)]))
    assert (file.dialect, file.tensors["a"].data.tobytes()) == ("optional", data)


def test_the_magic_tells_the_file(tmp_path: Path) -> None:
    opened(tmp_path, sglbitnt({}, []))
    (tmp_path / "short").write_bytes(b"SGLBITN")
    (tmp_path / "other").write_bytes(b"GGUF" * 4)
    names = ("m.bin", "short", "other", "none", ".", "n" * 300)
    assert [is_sglbitnt(tmp_path / name) for name in names] == [True, False, False, False, False, False]


# ---- every prefix, bug case B52 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("always", ALWAYS)
def test_no_prefix_loads(tmp_path: Path, always: bool) -> None:
    path = tmp_path / "m.bin"
    whole = sglbitnt(CONFIG, TENSORS, always=always)
    kinds = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        error = refusal(lambda: SglbitntFile(path))
        assert isinstance(error, FormatError)
        kinds.add(error.kind)
    # A file cut after its first data may look like the other dialect whose length is wrong.
    assert kinds <= {"truncated", "count", "size-mismatch"}
    assert "truncated" in kinds


# ---- lies --------------------------------------------------------------------------------------------------------

A = Tensor("a", s.U8, (4,), b"1234")
SCALED = Tensor("w", s.U8, (4,), b"1234", 0.5)


def changed(**fields: Any) -> Callable[[], bytes]:
    """A file of three tensors whose second one is changed so."""
    tensor = Tensor(**{**vars(A), "name": "b", **fields})
    return lambda: sglbitnt({}, [A, tensor, s.f32("c", FLOATS)])


CASES: list[tuple[str, str, Callable[[], bytes]]] = [
    ("not-sglbitnt", "expected b'SGLBITNT'", lambda: sglbitnt({}, [A], magic=b"SGLBITNU")),
    ("not-sglbitnt", "magic", lambda: b"\0" * 40),
    ("version", "found 2, expected 1", lambda: sglbitnt({}, [A], version=2)),
    ("version", "found 0", lambda: sglbitnt({}, [A], version=0)),
    ("version", "found 16777216", lambda: sglbitnt({}, [A], version=1 << 24)),  # big-endian
    ("config-utf8", "configuration", lambda: sglbitnt(b'{"\xff":1}', [A])),
    ("config-json", "configuration", lambda: sglbitnt(b"", [A])),
    ("config-json", "configuration", lambda: sglbitnt(b"{", [A])),
    ("config-json", "configuration key 'a': occurs twice", lambda: sglbitnt(b'{"a":1,"a":2}', [A])),
    ("config-json", "configuration", lambda: sglbitnt(b"[" * 100_000, [A])),
    ("config-json", "configuration", lambda: sglbitnt({"a": 1}, [A], config_length=7)),
    ("config-type", "found list", lambda: sglbitnt(b"[]", [A])),
    ("config-type", "found NoneType", lambda: sglbitnt(b"null", [A])),
    ("truncated", "configuration", lambda: sglbitnt({}, [A], config_length=2**32 - 1)),
    ("count", "number of tensors", lambda: sglbitnt({}, [A], count=2**32 - 1)),
    ("count", "found 2, expected at most 1", lambda: sglbitnt({}, [A], count=2)),
    ("trailing-bytes", "", lambda: sglbitnt({}, [A, A], count=1)),
    ("trailing-bytes", "", lambda: sglbitnt({}, [A]) + b"\0"),
    ("truncated", "name of tensor 1", lambda: sglbitnt({}, [A], count=2) + b"\xff" * 40),
    ("name-utf8", "name of tensor 1", changed(name=b"\xff")),
    ("duplicate-name", "tensor 'a'", changed(name="a")),
    ("unknown-dtype", "found 4", changed(dtype=4)),
    ("unknown-dtype", "found 4294967295", changed(dtype=2**32 - 1)),
    ("dims", "found 9, expected at most 8", changed(shape=(1,) * 9)),
    ("dims", "found 4294967295", changed(dims=2**32 - 1)),
    ("dims", "[0]", changed(shape=(0,), data=b"")),
    ("dims", "[4, 0]", changed(shape=(4, 0))),
    ("scale-flag", "found 2, expected 0 or 1", changed(flag=2)),
    ("scale-flag", "found 4294967295", changed(flag=2**32 - 1)),
    ("scale-non-finite", "tensor 'b'", changed(scale=float("nan"))),
    ("scale-non-finite", "found inf", changed(scale=float("inf"))),
    ("scale-non-finite", "found -inf", changed(scale=float("-inf"))),
    ("size-mismatch", "found 3, expected 4 (U8 [4])", changed(length=3)),
    ("size-mismatch", "found 5, expected 4", changed(length=5, scale=0.5)),
    ("size-mismatch", "found 0, expected 4", changed(length=0)),
    ("size-mismatch", f"found {2**64 - 1}", changed(length=2**64 - 1)),
    ("size-mismatch", "tensor 'b'", changed(shape=(2, 2, 2))),
    ("size-mismatch", "expected 16 (F32 [4])", changed(dtype=1)),
    ("size-mismatch", "tensor 'b'", changed(shape=(2**32 - 1,) * 8)),  # a product beyond u64
    ("truncated", "data of tensor 'b'", changed(shape=(2**31,), length=2**31)),
    # has_scale = 1 where no scale follows, and the other way round: every field after it slips by four bytes.
    ("size-mismatch", "tensor 'b'", changed(flag=1)),
    ("size-mismatch", "tensor 'b'", changed(flag=0, scale=0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "content"), CASES)
def test_malformed_files(tmp_path: Path, kind: str, says: str, content: Callable[[], bytes]) -> None:
    error = error_of(tmp_path, content())
    assert (error.kind, says) == (kind, says if says in str(error) else str(error))


def test_one_file_has_one_dialect(tmp_path: Path) -> None:
    """A tensor in the other dialect is a slip, not a change of mind."""
    for always in ALWAYS:
        raw = sglbitnt({}, [], count=2) + A.raw(always) + Tensor("b", s.U8, (4,), b"1234").raw(not always)
        assert error_of(tmp_path, raw).kind == "size-mismatch"


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202e", "x" * 60_000])
def test_hostile_names_are_printed_harmlessly(tmp_path: Path, text: str) -> None:
    error_of(tmp_path, sglbitnt({}, [Tensor(text, 9, (4,), b"1234")]))
    error_of(tmp_path, sglbitnt({}, [Tensor(text, 0, (4,), b"1234")] * 2))


def test_many_tensors_are_read_soon(tmp_path: Path) -> None:
    content = sglbitnt({}, [Tensor(f"{i}", s.U8, (1,), b"1") for i in range(5_000)] + [Tensor("0", s.U8, (1,), b"1")])
    assert error_of(tmp_path, content).kind == "duplicate-name"


def test_every_kind_that_the_reader_promises_is_seen_here() -> None:
    assert SglbitntFile.__doc__ is not None
    promised = {w.strip(".`") for w in SglbitntFile.__doc__.split("the kinds are")[1].replace(",", " ").split()}
    assert {kind for kind, _, _ in CASES} == promised


# ---- writing -----------------------------------------------------------------------------------------------------


def planned(tensor: Tensor) -> PlannedTensor:
    return plan(str(tensor.name), tensor.data, ("U8", "F32", "F16", "BF16")[tensor.dtype], tensor.shape)


# The helper gives a tensor without sizes that of its bytes.
WRITTEN = [t for t in TENSORS if t.shape]


@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_a_file_is_that_of_the_builder(tmp_path: Path, dialect: Dialect) -> None:
    scales = {str(t.name): np.float32(t.scale) for t in WRITTEN if t.scale is not None}
    write_sglbitnt(tmp_path / "m.bin", CONFIG, map(planned, WRITTEN), scales, dialect)
    assert (tmp_path / "m.bin").read_bytes() == sglbitnt(CONFIG, WRITTEN, always=dialect == "always")
    assert SglbitntFile(tmp_path / "m.bin").dialect == dialect


def test_the_bytes_are_these(tmp_path: Path) -> None:
    """By hand: one packed tensor and one float."""
    tensors = [plan("w", b"\x55", "U8", (1, 1)), plan("n", b"\0\0\x80\x3f", "F32", (1,))]
    write_sglbitnt(tmp_path / "m.bin", {"a": 1}, tensors, {"w": np.float32(0.5)})
    assert (tmp_path / "m.bin").read_bytes() == bytes.fromhex(
        "53474c4249544e54 01000000 08000000 7b2261223a20317d 02000000"
        "01000000 77 00000000 02000000 01000000 01000000 01000000 0000003f 0100000000000000 55"
        "01000000 6e 01000000 01000000 01000000 00000000 0400000000000000 0000803f"
    )


def test_a_failure_leaves_the_old_file_and_no_scrap(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    write_sglbitnt(path, CONFIG, map(planned, WRITTEN[:1]), {})
    assert_nothing_is_left(
        tmp_path, [planned(t) for t in WRITTEN], lambda tensors: write_sglbitnt(path, CONFIG, tensors, {})
    )


@pytest.mark.parametrize(
    ("kind", "tensor", "scales"),
    [
        ("duplicate-name", plan("a", b"12"), {}),
        ("name-utf8", plan("\ud800", b"12"), {}),
        ("unknown-dtype", plan("w", b"12", "I8"), {}),
        ("dims", plan("w", b"1", "U8", (1,) * 9), {}),
        ("dims", PlannedTensor("w", "U8", (0,), 0, list), {}),
        ("dims", PlannedTensor("w", "U8", (2**32,), 2**32, list), {}),
        ("size-mismatch", plan("w", b"12", "F32", (2,)), {}),
        ("scale-non-finite", plan("w", b"12"), {"w": np.float32(np.nan)}),
        ("scale-non-finite", plan("w", b"12"), {"w": np.float32(np.inf)}),
        ("scale-unused", plan("w", b"12"), {"w": np.float32(1), "v": np.float32(1)}),
    ],
)
def test_what_the_format_cannot_hold(
    tmp_path: Path, kind: str, tensor: PlannedTensor, scales: dict[str, np.float32]
) -> None:
    error = refusal(lambda: write_sglbitnt(tmp_path / "m.bin", {}, [plan("a", b"1"), tensor], scales))
    assert (type(error), error.kind, error.file) == (OutputError, kind, str(tmp_path / "m.bin"))
    assert list(tmp_path.iterdir()) == []
