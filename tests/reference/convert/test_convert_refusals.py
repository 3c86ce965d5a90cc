"""What the converter refuses, and that a refusal or a failure leaves nothing behind."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversions import TILES, TO_BITNET, bitnet, converted, llama, masters, options
from refusals import refusal
from small_models import WIDE, bf16_entry, hf_error, llama_like, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert, gguf, hf, sglbitnt
from tritgold.errors import ConversionError, FormatError, PackingError, TritgoldError
from tritgold.formats.layouts import Layouts
from tritgold.formats.packings.packing_base import Packing


def refused(source: Checkpoint | Path, folder: Path, to: str, **fields: Any) -> TritgoldError:
    """The error, after making sure that the folder for the result is as it was."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    before = set(out.rglob("*"))
    error = refusal(lambda: converted(source, out, to, **fields))
    assert set(out.rglob("*")) == before
    return error


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(bitnet(tmp_path))


# ---- before anything is written ----------------------------------------------------------------------------------


def test_an_unknown_target_lists_the_known_ones(source: Checkpoint, tmp_path: Path) -> None:
    error = refusal(lambda: convert(source, tmp_path / "x", "q4_0", Options()))
    assert error.kind == "unknown-target"
    assert all(name in str(error) for name in TO_BITNET)


def test_masters_are_not_quantised_unasked(source: Checkpoint, tmp_path: Path) -> None:
    folder = masters(source, tmp_path / "m", np.ones((256, 256), np.float32))
    opened = open_checkpoint(folder, quantize=True)
    error = refused(opened, tmp_path, "i2_s")
    assert error.kind == "not-ternary"
    assert "_proj.weight" in str(error)
    assert "q_proj" not in str(error), "all ones: trit x scale already, so the next matrix is the one to name"
    assert "--quantize absmean" in str(error)


@pytest.mark.parametrize("to", ["tq1_0", "tq2_0"])
def test_rows_that_are_no_whole_blocks(to: str, tmp_path: Path) -> None:
    """B29 with rows of 128 (of 3200, the 3B's, in test_packing_refusals): refused with the tensor's name."""
    opened = open_checkpoint(seeded(tmp_path, replace(WIDE, hidden=128)).write(tmp_path / "m"))
    error = refused(opened, tmp_path, to)
    assert isinstance(error, PackingError)
    assert error.kind == "packing-shape"
    assert "blk.0.attn_q.weight" in str(error)
    assert "128 is not" in str(error)
    assert "--fallback" in str(error)


@pytest.mark.parametrize(("to", "layouts"), [("tl1", TILES), ("tl2", Layouts(tile={"BM": 48, "BK": 96}))])
def test_tiles_that_do_not_fit(source: Checkpoint, to: str, layouts: Layouts, tmp_path: Path) -> None:
    assert refused(source, tmp_path, to, layouts=layouts).kind in ("packing-option", "packing-shape")


@pytest.mark.parametrize("to", ["tl1", "tl2"])
def test_no_tiles(source: Checkpoint, to: str, tmp_path: Path) -> None:
    error = refused(source, tmp_path, to, layouts=Layouts())
    assert error.kind == "no-tile"
    assert "--tile" in str(error)


def test_sub_norms_do_not_fit_into_llama(source: Checkpoint, tmp_path: Path) -> None:
    error = refused(source, tmp_path, "i2_s", architecture="llama")
    assert error.kind == "architecture"


def test_an_unknown_architecture(source: Checkpoint, tmp_path: Path) -> None:
    assert refused(source, tmp_path, "i2_s", architecture="gemma").kind == "architecture"


def test_a_head_of_its_own_does_not_fit_into_bitnet(tmp_path: Path) -> None:
    """B59 the other way round: engines would take the embedding for the head."""
    model = seeded(tmp_path, WIDE)
    model.config["tie_word_embeddings"] = False
    model.entries["lm_head.weight"] = bf16_entry(model.floats("model.embed_tokens.weight")[::-1])
    opened = open_checkpoint(model.write(tmp_path / "m"))
    assert refused(opened, tmp_path, "i2_s").kind == "untied-head"
    assert converted(opened, tmp_path, "hf").model_hash() == opened.model_hash()


@pytest.mark.parametrize("to", ["tq1_0", "tq2_0", "gguf-f16"])
def test_scales_that_float16_cannot_hold(to: str, tmp_path: Path) -> None:
    """Refused where nothing beside the payload takes them; rounded only where that is asked for."""
    opened = open_checkpoint(llama(tmp_path))
    error = refused(opened, tmp_path, to)
    assert error.kind == "scale-rounded"
    assert "blk.0.attn_" in str(error)
    result = converted(opened, tmp_path, to, round_scales=True)
    for (_, ours), (_, theirs) in zip(opened.weights.linears(), result.weights.linears(), strict=True):
        assert theirs.ternary().scale == np.float16(1 / ours.ternary().scale)


@pytest.mark.parametrize("scale", [-0.5, 1e-9, 1e5])
@pytest.mark.parametrize("to", ["tq2_0", "gguf-f16"])
def test_arch_bitnet_keeps_any_scale_beside_the_payload(scale: float, to: str, tmp_path: Path) -> None:
    """Under ``<tensor>.scale``, which llama.cpp multiplies with the result; float16 holds none of these three exactly
    in a way that could be told from other trits."""
    model = seeded(tmp_path, WIDE)
    model.config["hidden_act"] = "silu"
    name = next(n for n in model.entries if n.endswith("weight_scale"))
    model.entries[name] = bf16_entry(np.array([scale], np.float32))
    with pytest.warns() if scale < 0 else _nothing():
        opened = open_checkpoint(model.write(tmp_path / "m"))
    with pytest.warns() if scale < 0 else _nothing():
        assert converted(opened, tmp_path, to).model_hash() == opened.model_hash()


def test_a_scale_without_a_reciprocal(tmp_path: Path) -> None:
    """1e-39 divides on this side; its reciprocal is beyond float32."""
    model = llama_like(tmp_path, WIDE)
    name = next(n for n in model.entries if n.endswith("weight_scale"))
    model.entries[name] = bf16_entry(np.array([1e-39], np.float32))
    error = refused(open_checkpoint(model.write(tmp_path / "m")), tmp_path, "i2_s")
    assert error.kind == "scale-reciprocal"


def test_an_embedding_beyond_float16(tmp_path: Path) -> None:
    model = seeded(tmp_path, WIDE)
    values = model.floats("model.embed_tokens.weight")
    values[3, 5] = 70000
    model.entries["model.embed_tokens.weight"] = bf16_entry(values)
    opened = open_checkpoint(model.write(tmp_path / "m"))
    error = refused(opened, tmp_path, "i2_s", embedding="F16")
    assert (error.kind, error.got) == ("float-overflow", 70144.0)
    assert converted(opened, tmp_path, "i2_s", embedding="F32").model_hash() == opened.model_hash()


# ---- while writing and after ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", TO_BITNET)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")])
def test_a_failure_while_writing_leaves_nothing(
    source: Checkpoint, to: str, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def failing(*_: object) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise error
        return packed(*_)

    packed = Packing.pack
    monkeypatch.setattr(Packing, "pack", failing)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(TritgoldError if isinstance(error, OSError) else error):
        converted(source, out, to)
    assert calls == 5
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("to", TO_BITNET)
def test_the_proof_finds_one_wrong_trit(
    source: Checkpoint, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packing that writes one other trit: valid bytes, which only the comparison can tell."""
    packed, calls = Packing.pack, 0

    def wrong(self: Packing, trits: np.ndarray, scale: Any = 1.0) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 3:
            trits = trits.copy()
            trits[7, 11] = (trits[7, 11] + 2) % 3 - 1
        return packed(self, trits, scale)

    monkeypatch.setattr(Packing, "pack", wrong)
    error = refused(source, tmp_path, to)
    assert isinstance(error, ConversionError)
    assert error.kind == "not-equal"
    assert f"layers.0.{'up' if to == 'hf' else 'v'}: trit [7, 11]" in str(error)  # safetensors lie by name


@pytest.mark.parametrize(
    ("plans", "to"), [(gguf.GgufPlan, "i2_s"), (hf.HfPlan, "hf"), (sglbitnt.SglbitntPlan, "sglbitnt")]
)
@pytest.mark.parametrize("part", ["scale", "norm", "embedding"])
def test_the_proof_finds_any_other_difference(
    source: Checkpoint, plans: Any, to: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is damaged between writing and proof, in a way that its reader accepts."""
    written = plans.write

    def damaged(plan: Any, path: Path) -> None:
        written(plan, path)
        file = path / "model.safetensors" if path.is_dir() else path
        raw = bytearray(file.read_bytes())
        raw[PLACES[part](_tensors(path))] ^= 1
        file.write_bytes(raw)

    monkeypatch.setattr(plans, "write", damaged)
    error = refused(source, tmp_path, to)
    assert error.kind == "not-equal"


def _tensors(path: Path) -> dict[str, Any]:
    from tritgold.formats.gguf_file import GgufFile
    from tritgold.formats.safetensors_folder import SafetensorsFolder
    from tritgold.formats.sglbitnt_file import SglbitntFile

    if path.is_dir():
        return SafetensorsFolder(path).tensors
    return (GgufFile if path.read_bytes()[:4] == b"GGUF" else SglbitntFile)(path).tensors


def _scale_place(tensors: dict[str, Any]) -> int:
    """A byte of q's scale: a tensor of its own, after the I2_S payload, or 12 bytes before SGLBITNT's data."""
    names = [n for n in tensors if n.endswith(("q_proj.weight_scale", "attn_q.weight", "q_proj.weight"))]
    tensor = tensors[max(names, key=len)]
    if tensor.name.endswith("scale"):
        return tensor.offset
    return tensor.offset + (tensor.data.size - 30 if tensor.dtype == "I2_S" else -10)


def _last_value_of(part: str) -> Callable[[dict[str, Any]], int]:
    """The upper half of the last float of the first tensor whose name has this part."""

    def place(tensors: dict[str, Any]) -> int:
        tensor = next(t for name, t in tensors.items() if part in name)
        return tensor.offset + tensor.data.size - 2

    return place


PLACES = {"scale": _scale_place, "norm": _last_value_of("norm"), "embedding": _last_value_of("emb")}


def test_an_earlier_result_stays_where_the_new_one_fails(
    source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted(source, tmp_path, "i2_s")
    before = (tmp_path / "i2_s.gguf").read_bytes()
    monkeypatch.setattr(Packing, "pack", lambda *_: b"")
    assert refusal(lambda: converted(source, tmp_path, "i2_s")).kind == "planned-size"
    assert (tmp_path / "i2_s.gguf").read_bytes() == before


def test_a_folder_with_something_in_it_is_not_replaced(source: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "mine.txt").write_text("mine")
    assert refusal(lambda: converted(source, tmp_path, "hf")).kind == "exists"
    assert [file.name for file in (tmp_path / "hf").iterdir()] == ["mine.txt"]


def test_the_source_cannot_be_the_destination(source: Checkpoint, tmp_path: Path) -> None:
    """The new file takes the name only when it is complete, and the source stays readable until then."""
    first = converted(source, tmp_path, "i2_s")
    convert(first, tmp_path / "i2_s.gguf", "tq2_0", options("tq2_0"))
    assert open_checkpoint(tmp_path / "i2_s.gguf").model_hash() == source.model_hash()


def test_a_truncated_source_is_refused_before_anything_is_written(source: Checkpoint, tmp_path: Path) -> None:
    """B52: the converter leaves no output behind."""
    converted(source, tmp_path, "i2_s")
    raw = (tmp_path / "i2_s.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (0, 3, 40, len(raw) // 2, len(raw) - 1):
        cut.write_bytes(raw[:length])
        assert isinstance(refused(cut, tmp_path, "hf"), FormatError)


def test_a_source_that_is_no_model(tmp_path: Path) -> None:
    model = seeded(tmp_path, WIDE)
    del model.entries["model.norm.weight"]
    assert hf_error(model, tmp_path / "m").kind == "missing-tensor"


class _nothing:  # noqa: N801 - used as pytest.warns is
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
