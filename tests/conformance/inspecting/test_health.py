"""What `tritgold inspect` calls odd: each finding with a file that has it, and the same file without."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from inspected import gguf, hf, hf_parts, inspect, kinds, repacked, shown
from small_models import EMBEDDING, Entry, GgufModel, bf16_entry, llama_like, planned

from tritgold.formats.hf_writer import write_hf_folder
from tritgold.formats.packings import packing

Q = "blk.0.attn_q.weight"
PAYLOAD = 256 * 256 // 4


def finding(model: GgufModel, path: Path, kind: str) -> dict[str, object]:
    """The one finding of this kind about a written model."""
    facts = inspect(model.write(path))[1]
    (found,) = [f for f in facts["health"] if f["kind"] == kind]
    return dict(found)


def patched(model: GgufModel, begin: int, data: bytes, name: str = Q) -> GgufModel:
    tensor = model.tensors[name]
    model.tensors[name] = replace(tensor, data=tensor.data[:begin] + data + tensor.data[begin + len(data) :])
    return model


def test_a_sound_model_says_nothing_odd(tmp_path: Path) -> None:
    assert inspect(gguf(tmp_path).write(tmp_path / "m.gguf"))[1]["health"] == []
    assert inspect(hf(tmp_path))[1]["health"] == []
    assert "Health: nothing odd" in shown(80, hf(tmp_path))


def test_code_3_is_counted_and_placed(tmp_path: Path) -> None:
    """Byte 35 is byte 3 of the second block: its pairs are weights 131, 163, 195, 227."""
    found = finding(patched(gguf(tmp_path), 35, b"\x5f"), tmp_path / "m.gguf", "code-3")
    assert found == {"kind": "code-3", "tensors": 1, "first": Q, "what": "2 x code 3, first at [0, 195], byte 35"}
    code, facts = inspect(tmp_path / "m.gguf")
    assert code == 1
    assert facts["problem"]["kind"] == "code-3"
    assert {group["verdict"] for group in facts["fingerprint"]} == {"nothing fits"}
    assert inspect(tmp_path / "m.gguf", "--code3", "zero", "--i2s", "128")[0] == 0


def test_all_bytes_00_are_told_from_all_bytes_55(tmp_path: Path) -> None:
    empty = finding(patched(gguf(tmp_path / "a"), 0, bytes(PAYLOAD)), tmp_path / "0.gguf", "all-minus-one")
    assert empty["what"] == "every weight is -1, every byte 0x00: an empty or failed read"
    zero = finding(patched(gguf(tmp_path / "b"), 0, b"\x55" * PAYLOAD), tmp_path / "55.gguf", "all-zero")
    assert zero["what"] == "every weight is 0, every byte 0x55"
    assert kinds(inspect(tmp_path / "55.gguf")[1]) == {"all-zero"}


def test_rows_that_were_never_filled_are_counted(tmp_path: Path) -> None:
    """Rows 7 and 8 of 256 weights: 64 bytes each."""
    found = finding(patched(gguf(tmp_path), 7 * 64, bytes(128)), tmp_path / "m.gguf", "rows-minus-one")
    assert found["what"] == "2 rows with only -1, the first is row 7: zero bytes"


@pytest.mark.parametrize(
    ("scale", "kind", "what", "code"),
    [
        (np.nan, "scale-non-finite", "1 scales are not finite: nan", 1),
        (-np.inf, "scale-non-finite", "1 scales are not finite: -inf", 1),
        (0.0, "scale-zero", "a scale of 0 turns non-zero weights into 0", 4),
        (-1.5, "scale-negative", "1 negative scales: -1.5", 4),
    ],
)
def test_a_suspicious_scale(tmp_path: Path, scale: float, kind: str, what: str, code: int) -> None:
    model = patched(gguf(tmp_path), PAYLOAD, np.array([scale], "<f4").tobytes())
    assert finding(model, tmp_path / "m.gguf", kind)["what"] == what
    assert inspect(tmp_path / "m.gguf")[0] == code


def test_a_zero_scale_over_zeros_is_not_suspicious(tmp_path: Path) -> None:
    model = patched(gguf(tmp_path), 0, b"\x55" * PAYLOAD + bytes(4))
    assert kinds(inspect(model.write(tmp_path / "m.gguf"))[1]) == {"all-zero"}


def test_a_block_scale_that_is_no_number_and_blocks_that_differ(tmp_path: Path) -> None:
    sound = repacked(gguf(tmp_path), 35, packing("tq2_0"), lambda trits: trits)
    assert kinds(inspect(sound.write(tmp_path / "m.gguf"))[1]) == set()
    half = np.array([0.75], "<f2").tobytes()  # row 1 is block 1: its scale is bytes 130 and 131
    found = finding(patched(sound, 130, half), tmp_path / "m.gguf", "scale-differs")
    assert str(found["what"]).startswith("2 scales in 256 rows, some for a row or two: one of them is damaged")
    found = finding(patched(sound, 130, b"\x00\x7c"), tmp_path / "m.gguf", "scale-non-finite")
    assert found["what"] == "1 scales are not finite, the first in block [1, 0]: inf"


def test_bytes_that_no_encoder_writes(tmp_path: Path) -> None:
    model = repacked(gguf(tmp_path), 34, packing("tq1_0"), lambda trits: trits)
    found = finding(patched(model, 0, bytes([1, 20])), tmp_path / "m.gguf", "odd-bytes")
    assert found["what"] == "2 bytes that can be decoded but that no encoder writes"


def masters(tmp_path: Path, encode: Callable[[np.ndarray], bytes], type_id: int) -> GgufModel:
    """A model whose linears were quantised from Gaussian masters by the format's own quantiser."""
    model = gguf(tmp_path)
    random = np.random.default_rng(0)
    for name, tensor in model.tensors.items():
        if tensor.type_id == g.TYPE_I2_S:
            values = random.standard_normal(tensor.shape).astype(np.float32)
            model.tensors[name] = replace(tensor, type_id=type_id, data=encode(values))
    return model


def test_the_i2_s_quantiser_fed_with_masters_leaves_no_zeros(tmp_path: Path) -> None:
    """Its formula: the largest magnitude is the scale, and every weight of at least 1e-6 becomes its sign."""

    def quantise(x: np.ndarray) -> bytes:
        codes = np.where(np.abs(x) < 1e-6, 1, np.where(x > 0, 2, 0))
        return g.i2_s(codes.reshape(-1).tolist(), float(np.abs(x).max()))

    model = masters(tmp_path, quantise, g.TYPE_I2_S)
    found = finding(model, tmp_path / "m.gguf", "no-zeros")
    assert found["tensors"] == 7
    assert str(found["what"]).startswith("0.0% zeros: I2_S's quantiser")


def test_the_tq_quantiser_fed_with_masters_leaves_few_weights(tmp_path: Path) -> None:
    model = masters(tmp_path, lambda x: quantize(x, GGMLQuantizationType.TQ2_0).tobytes(), 35)
    found = finding(model, tmp_path / "m.gguf", "few-non-zeros")
    assert str(found["what"]).startswith("13% non-zero: TQ1_0's and TQ2_0's")
    assert kinds(inspect(tmp_path / "m.gguf")[1]) == {"few-non-zeros", "scale-differs"}


def test_a_label_that_no_tensor_bears_out(tmp_path: Path) -> None:
    """Asked for I2_S, got F16 that says I2_S."""
    model = gguf(tmp_path)
    model.set("general.file_type", g.U32, 40)
    assert inspect(model.write(tmp_path / "m.gguf"))[1]["health"] == []
    model = repacked(model, g.TYPE_F16, packing("f16"), lambda trits: trits)
    found = finding(model, tmp_path / "m.gguf", "file-type")
    assert found["what"] == "general.file_type calls the file I2_S or Q1_0, but its linear weights are F16"


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (0, "calls the file F32, but its linear weights are I2_S"),
        (41, "calls the file Q2_0, but its linear weights are I2_S"),
        (15, "calls the file Q4_K, but its linear weights are I2_S"),
        (1024 + 37, "calls the file TQ2_0, but its linear weights are I2_S"),
        (999, "is 999, which is not defined"),
    ],
)
def test_labels_that_contradict(tmp_path: Path, number: int, what: str) -> None:
    model = gguf(tmp_path)
    model.set("general.file_type", g.U32, number)
    assert finding(model, tmp_path / "m.gguf", "file-type")["what"] == f"general.file_type {what}"


def test_a_label_that_is_no_number_is_no_label(tmp_path: Path) -> None:
    model = gguf(tmp_path)
    for kind, value in ((g.STRING, "Q4_0"), (g.ARRAY, g.array(g.U32, [36])), (g.ARRAY, g.array(g.STRING, ["a"]))):
        model.set("general.file_type", kind, value)
        assert inspect(model.write(tmp_path / "m.gguf"))[1]["health"] == []


def test_a_head_that_repeats_the_embedding(tmp_path: Path) -> None:
    model = hf_parts(tmp_path)
    model.entries["lm_head.weight"] = model.entries[EMBEDDING]
    code, facts = inspect(model.write(tmp_path / "copy"))
    assert (code, kinds(facts)) == (0, {"head-copy"})
    assert kinds(inspect(llama_like(tmp_path / "llama").write(tmp_path / "own-head"))[1]) == set()


def test_a_token_outside_the_vocabulary_is_a_finding_and_no_warning(tmp_path: Path) -> None:
    model = hf_parts(tmp_path)
    model.config["eos_token_id"] = 128001
    code, facts = inspect(model.write(tmp_path / "m"))
    assert (code, kinds(facts)) == (0, {"configuration"})
    assert "lies outside the vocabulary" in facts["health"][0]["what"]


def test_surplus_rows_of_a_packed_folder_are_no_weights(tmp_path: Path) -> None:
    """out = 6 shares its last byte with two rows of code 0, which are not rows of -1."""
    trits = np.ones((6, 8), np.int8)
    path = tmp_path / "m.safetensors"
    entries = {
        "a.weight": Entry("U8", (2, 8), packing("hf").pack(trits)),
        "a.weight_scale": bf16_entry(np.ones(1, np.float32)),
    }
    write_hf_folder(tmp_path, {}, planned(entries), {})
    (tmp_path / "model.safetensors").rename(path)
    # Nothing says that there are 6 rows, so the surplus is seen as what it is.
    assert kinds(inspect(path)[1]) == {"rows-minus-one", "no-zeros"}


def test_a_refusal_for_numbers_that_are_none_is_never_nothing_odd(tmp_path: Path) -> None:
    model = hf_parts(tmp_path)
    entry = model.entries[EMBEDDING]
    model.entries[EMBEDDING] = replace(entry, data=b"\xff" * 4 + entry.data[4:])
    path = model.write(tmp_path / "nan")
    code, facts = inspect(path)
    assert (code, kinds(facts)) == (1, {facts["problem"]["kind"]})
    assert facts["problem"]["kind"].endswith("non-finite")
    assert "nothing odd" not in shown(80, path)


def test_a_refused_model_is_odd_elsewhere(tmp_path: Path) -> None:
    model = hf_parts(tmp_path)
    model.config["rope_scaling"] = {"type": "yarn"}
    text = " ".join(shown(80, model.write(tmp_path / "m")).split())
    assert "Health: nothing odd about the linear weights; the reason for the refusal is shown below" in text
