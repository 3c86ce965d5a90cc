"""Which layouts are left for a tensor, and why the others are not: every verdict with bytes that cause it."""

from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from trit_layouts import golden_matrix

from tritgold.formats.container import StoredTensor
from tritgold.formats.fingerprint import (
    Hypothesis,
    gguf_hypotheses,
    is_open,
    label_of,
    options_of,
    places,
    sglbitnt_hypotheses,
    uint8_hypotheses,
)
from tritgold.formats.fingerprint_group import merged, padding_is_zero
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.packings import PACKINGS, packing

TRITS = golden_matrix(256, 512)
TYPE_TL1, TYPE_39, TYPE_41, TYPE_42 = 38, 39, 41, 42


def stored(data: bytes, shape: tuple[int, int], dtype: str = "U8") -> StoredTensor:
    return StoredTensor(Path("m"), "w", dtype, shape, 0, np.frombuffer(data, np.uint8))


def gguf(tmp_path: Path, tensors: list[g.Tensor], arch: str = "bitnet-b1.58", q2_0_block: int = 64) -> GgufFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(g.gguf([g.pair("general.architecture", g.STRING, arch)], tensors))
    return GgufFile(path, q2_0_block)


def hypotheses(tmp_path: Path, type_id: int, data: bytes, shape: tuple[int, int], **how: object) -> list[Hypothesis]:
    """Of the first of two tensors, so that its span is that to the second."""
    block = how.pop("q2_0_block", 64)
    arch = how.pop("arch", "bitnet-b1.58")
    tensors = [g.Tensor("w", shape, type_id, data), g.f32("z", np.zeros(8, np.float32))]
    file = gguf(tmp_path, tensors, arch, block)  # type: ignore[arg-type]
    return gguf_hypotheses(file.tensors["w"], places(file)["w"], **how)  # type: ignore[arg-type]


def fitting(found: list[Hypothesis]) -> list[str]:
    return [hypothesis.label for hypothesis in found if hypothesis.fits]


def reason(found: list[Hypothesis], label: str) -> str:
    hypothesis = next(h for h in found if h.label == label)
    assert not hypothesis.fits
    return hypothesis.reason


def i2_s(trits: np.ndarray, scale: float = 1.5, padding: bytes = bytes(28)) -> bytes:
    return g.i2_s((trits.reshape(-1).astype(int) + 1).tolist(), scale, padding)


def test_all_three_layouts_of_type_36_fit_the_same_bytes_and_iq4_nl_does_not(tmp_path: Path) -> None:
    found = hypotheses(tmp_path, g.TYPE_I2_S, i2_s(TRITS), TRITS.shape)
    assert fitting(found) == ["i2_s block=128", "i2_s block=64", "i2_s_4rows"]
    # 256 x 512 weights: 18 bytes for 32 would be 73728; the next tensor begins 32768 + 32 bytes on.
    assert reason(found, "IQ4_NL_4_4") == "would be 73728 bytes, and the next tensor begins after 32800"
    assert [h.shape for h in found] == [(256, 512)] * 4


def test_a_shape_that_a_layout_cannot_hold_rules_it_out(tmp_path: Path) -> None:
    # 3 rows share no bytes by fours; 2 x 96 weights are three blocks of 64 and no whole ones of 128.
    three = hypotheses(tmp_path, g.TYPE_I2_S, i2_s(TRITS[:3]), (3, 512))
    assert fitting(three) == ["i2_s block=128", "i2_s block=64"]
    assert "out a multiple of 4" in reason(three, "i2_s_4rows")
    narrow = TRITS[:2, :96]
    data = packing("i2_s", block=64).pack(np.ascontiguousarray(narrow), 1.0)
    found = hypotheses(tmp_path, g.TYPE_I2_S, data, (2, 96))
    assert fitting(found) == ["i2_s block=64"]
    assert "a multiple of 128" in reason(found, "i2_s block=128")


def test_code_3_rules_out_every_layout_of_type_36_with_its_count_and_place(tmp_path: Path) -> None:
    damaged = bytearray(i2_s(TRITS))
    damaged[40] = 0xFF  # byte 8 of the second block: weights 136, 168, 200 and 232
    found = hypotheses(tmp_path, g.TYPE_I2_S, bytes(damaged), TRITS.shape)
    assert fitting(found) == []
    assert "it occurs 4 times, first at [0, 136], byte 40" in reason(found, "i2_s block=128")
    # Blocks of 64: byte 8 of the third, which begins with weight 128.
    assert "first at [0, 136], byte 40" in reason(found, "i2_s block=64")
    assert "first at [0, 40], byte 40" in reason(found, "i2_s_4rows")
    lenient = hypotheses(tmp_path, g.TYPE_I2_S, bytes(damaged), TRITS.shape, code3_as_zero=True)
    assert len(fitting(lenient)) == 3
    assert "read as 0 (code3_as_zero)" in lenient[0].reason


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_no_number_rules_a_layout_out(tmp_path: Path, scale: float) -> None:
    found = hypotheses(tmp_path, g.TYPE_I2_S, i2_s(TRITS, scale), TRITS.shape)
    assert fitting(found) == []
    assert "a scale would be" in reason(found, "i2_s block=64")


def test_a_span_reaches_to_the_next_tensor_by_offset_or_to_the_end(tmp_path: Path) -> None:
    """The infos in another order than the data, and a gap of 64 bytes after a tensor of 40."""
    tensors = [
        g.f32("c", np.zeros(8, np.float32), 160),
        g.f32("a", np.zeros(10, np.float32), 0),
        g.f32("b", np.zeros(8, np.float32), 128),
    ]
    file = gguf(tmp_path, tensors)
    assert file.spans == {"c": 32, "a": 128, "b": 32}
    found = places(file)
    assert {name: place.span for name, place in found.items()} == file.spans
    assert [found["a"].fills(size) for size in (96, 97, 128, 129)] == [False, True, True, False]


def test_a_gap_behind_a_tensor_rules_nothing_out(tmp_path: Path) -> None:
    """32 bytes more than the padding: GGUF allows gaps, and no other type of number 36 fills the span."""
    data = i2_s(TRITS)
    tensors = [
        g.Tensor("w", TRITS.shape, g.TYPE_I2_S, data, 0),
        g.f32("z", np.zeros(8, np.float32), len(data) + 32),
    ]
    file = gguf(tmp_path, tensors)
    found = gguf_hypotheses(file.tensors["w"], places(file)["w"])
    assert fitting(found) == ["i2_s block=128", "i2_s block=64", "i2_s_4rows"]
    assert found[0].reason.endswith("; 32 bytes after it are more than padding")
    assert "would be 73728 bytes" in reason(found, "IQ4_NL_4_4")  # longer than the span: no gap explains that


def test_type_42_is_told_by_the_span_alone(tmp_path: Path) -> None:
    """18 bytes for 64 against 34 for 128: 131072 weights differ by 2048 bytes."""
    for block, other in ((64, 128), (128, 64)):
        data = packing("q2_0", block=block).pack(TRITS, 1.0)
        found = hypotheses(tmp_path, TYPE_42, data, TRITS.shape, q2_0_block=block)
        assert fitting(found) == [f"q2_0 block={block}"]
        size = {64: 36864, 128: 34816}
        assert reason(found, f"q2_0 block={other}") == (
            f"would be {size[other]} bytes, and the next tensor begins after {size[block]}"
        )


def test_two_lengths_that_padding_makes_equal_both_fit(tmp_path: Path) -> None:
    """4 x 128 weights: 8 x 18 = 144 against 4 x 34 = 136 bytes, both padded to 160."""
    trits = np.ascontiguousarray(TRITS[:4, :128])
    found = hypotheses(tmp_path, TYPE_42, packing("q2_0").pack(trits, 1.0), (4, 128))
    assert fitting(found) == ["q2_0 block=64", "q2_0 block=128"]
    assert "not looked at" in found[1].reason


@pytest.mark.parametrize("arch", ["bitnet-b1.58", "llama"])
def test_type_39_is_tl2_or_mxfp4_by_its_span(tmp_path: Path, arch: str) -> None:
    trits = golden_matrix(256, 512)
    tl2 = packing("tl2", BM=256, BK=96).pack(trits, 1.0)
    found = hypotheses(tmp_path, TYPE_39, tl2, trits.shape, arch=arch)
    assert "tl2 BM=256 BK=96 bm=32" in fitting(found)
    assert "would be 69632 bytes" in reason(found, "MXFP4")  # 131072 / 32 x 17
    mxfp4 = hypotheses(tmp_path, TYPE_39, bytes(69632), trits.shape, arch=arch)
    assert fitting(mxfp4) == ["MXFP4"]
    assert next(h for h in mxfp4 if h.fits).layout is None


def test_tiles_are_tried_as_given_or_as_published_and_never_taken_for_all(tmp_path: Path) -> None:
    trits = golden_matrix(256, 128)
    data = packing("tl1", BM=64, BK=128, bm=32).pack(trits, 1.0)
    published = hypotheses(tmp_path, TYPE_TL1, data, trits.shape)
    assert len(fitting(published)) > 1
    assert "tl1 BM=64 BK=128 bm=32" not in fitting(published)  # nobody published it
    assert "out a multiple of BM = 160" in reason(published, "tl1 BM=160 BK=64 bm=32")
    given = hypotheses(tmp_path, TYPE_TL1, data, trits.shape, tiles=[{"BM": 64, "BK": 128, "bm": 32}])
    assert fitting(given) == ["tl1 BM=64 BK=128 bm=32"]
    assert is_open("TL1", None)
    assert not is_open("TL1", [{"BM": 64}])
    assert not is_open("I2_S", None)


def test_nibbles_beyond_the_table_rule_out_a_tile_of_tl2(tmp_path: Path) -> None:
    """Where triples end and pairs begin depends on BK: magnitudes of up to 13 are not pairs of up to 8."""
    trits = golden_matrix(256, 512)
    data = packing("tl2", BM=256, BK=96).pack(trits, 1.0)  # 480 columns of triples
    found = hypotheses(tmp_path, TYPE_39, data, trits.shape)  # BK 192: 384 columns of triples
    assert "a nibble beyond the table" in reason(found, "tl2 BM=128 BK=192 bm=32")


def test_types_with_one_layout_have_one_hypothesis(tmp_path: Path) -> None:
    signs = np.where(golden_matrix(4, 256) >= 0, 1, -1).astype(np.int8)
    for type_id, name, trits in ((34, "tq1_0", TRITS), (35, "tq2_0", TRITS), (TYPE_41, "q1_0", signs)):
        found = hypotheses(tmp_path, type_id, packing(name).pack(trits, 1.0), trits.shape)
        assert [h.label for h in found] == fitting(found) == [name]


def test_bytes_that_no_encoder_writes_are_counted_and_rule_nothing_out(tmp_path: Path) -> None:
    data = bytearray(packing("tq1_0").pack(TRITS, 1.0))
    data[:3] = bytes([1, 20, 237])
    found = hypotheses(tmp_path, 34, bytes(data), TRITS.shape)
    assert found[0].fits
    assert "no encoder writes 3 of the bytes" in found[0].reason


def test_uint8_of_four_rows_or_of_four_columns_is_told_by_the_shape_of_the_model() -> None:
    hf = stored(packing("hf").pack(TRITS), (64, 512))
    assert fitting(uint8_hypotheses(hf, (256, 512))) == ["hf"]
    other = uint8_hypotheses(hf, (64, 2048))
    assert fitting(other) == ["sglbitnt", "sequential order=lsb", "sequential order=msb"]
    assert reason(other, "hf") == "would be 256 x 512 weights, and the model has 64 x 2048"
    # The codes 0, 1 and 2 all occur: torchao has no 2, the GPU's tiles have no 0.
    assert "code 2" in reason(other, "torchao")
    assert "code 0" in reason(other, "gpu_int2")


def test_uint8_without_a_model_is_told_by_codes_as_far_as_they_go() -> None:
    sets = {
        name: fitting(uint8_hypotheses(stored(packing(name).pack(TRITS), (64, 512))))
        for name in ("hf", "torchao", "gpu_int2")
    }
    assert sets == {
        "hf": ["hf", "sglbitnt", "sequential order=lsb", "sequential order=msb"],
        "torchao": ["torchao"],
        "gpu_int2": ["gpu_int2"],
    }


def test_rows_that_are_no_multiple_of_4_share_their_last_byte() -> None:
    trits = golden_matrix(5, 8)
    found = uint8_hypotheses(stored(packing("hf").pack(trits), (2, 8)), (5, 8))
    assert fitting(found) == ["hf"]
    assert found[0].shape == (5, 8)
    assert "no encoder" not in found[0].reason


def test_sglbitnt_has_one_layout_and_refuses_another_shape() -> None:
    data = stored(packing("sglbitnt").pack(TRITS), (256, 128))
    assert fitting(sglbitnt_hypotheses(data)) == ["sglbitnt"]
    assert "the model has 128 x 1024" in reason(sglbitnt_hypotheses(data, (128, 1024)), "sglbitnt")


def test_what_one_tensor_cannot_have_none_of_its_kind_has(tmp_path: Path) -> None:
    sound = hypotheses(tmp_path, g.TYPE_I2_S, i2_s(TRITS), TRITS.shape)
    three = hypotheses(tmp_path, g.TYPE_I2_S, i2_s(TRITS[:3]), (3, 512))
    found = merged({"layers.0.q": sound, "layers.0.k": three, "layers.1.k": three})
    assert fitting(found) == ["i2_s block=128", "i2_s block=64"]
    assert found[0].reason.endswith("in all 3")
    assert reason(found, "i2_s_4rows").endswith("(layers.0.k, and 1 more)")
    assert merged({"layers.0.q": sound}) == sound


def test_padding_behind_the_scale_is_looked_at_where_there_is_one(tmp_path: Path) -> None:
    clean, dirty = (stored(i2_s(TRITS, 1.0, padding), TRITS.shape, "I2_S") for padding in (bytes(28), b"\x07" * 28))
    assert padding_is_zero([clean]) is True
    assert padding_is_zero([clean, dirty]) is False
    assert padding_is_zero([stored(b"", (0, 0), "TQ2_0")]) is None


def test_a_label_names_packing_and_options() -> None:
    given = {"tl1": {"BM": 64, "BK": 128, "bm": 32}, "tl2": {"BM": 64, "BK": 96}}
    for name in PACKINGS:
        layout = packing(name, **given.get(name, {}))
        again = packing(name, **options_of(layout))
        assert label_of(again) == label_of(layout)
        assert label_of(layout).startswith(name)
