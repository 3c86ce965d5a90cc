"""`tritgold inspect`: which layout a file has, who says so, and with which exit code."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from inspected import agreements, gguf, hf, hf_parts, inspect, of_type, repacked, shown
from small_models import LAYER, Entry, Q

from tritgold.formats.packings import packing
from tritgold_conformance.inspecting.inspection import _exit_code

TYPE_TL1, TYPE_TL2, TYPE_Q2_0 = 38, 39, 42
THREE = ["i2_s block=128", "i2_s block=64", "i2_s_4rows"]


def same(trits: np.ndarray) -> np.ndarray:
    return trits


def foreign(tmp_path: Path, layout: str = "i2_s", **options: int) -> Path:
    """An I2_S file that says nothing of its layout, as every foreign one."""
    model = repacked(gguf(tmp_path), g.TYPE_I2_S, packing(layout, **options), same)
    return model.write(tmp_path / "foreign.gguf")


def test_a_foreign_i2_s_file_is_ambiguous_and_says_what_would_decide(tmp_path: Path) -> None:
    code, facts = inspect(foreign(tmp_path))
    group = of_type(facts, "I2_S")
    assert code == facts["exit_code"] == 4
    assert facts["problem"] is None
    assert group["verdict"] == "ambiguous"
    assert group["layout"] is group["by"] is None
    assert [h["layout"] for h in group["hypotheses"] if h["verdict"] == "fits"] == THREE
    assert "--i2s 128, 64 or 4rows" in group["advice"]
    assert "--twin FILE" in group["advice"]
    assert "I2_S (type 36, bitnet.cpp fork)" in facts["types"]


@pytest.mark.parametrize(("option", "layout"), list(zip(("128", "64", "4rows"), THREE, strict=True)))
def test_the_option_is_what_makes_it_certain(tmp_path: Path, option: str, layout: str) -> None:
    code, facts = inspect(foreign(tmp_path), "--i2s", option)
    assert code == 0
    assert (of_type(facts, "I2_S")["layout"], of_type(facts, "I2_S")["by"]) == (layout, "option")


@pytest.mark.parametrize(("stated", "layout"), list(zip(("128", "64", "4rows"), THREE, strict=True)))
def test_so_does_the_key_of_the_files_that_tritgold_writes(tmp_path: Path, stated: str, layout: str) -> None:
    model = gguf(tmp_path)
    model.set("tritgold.i2_s", g.STRING, stated)
    path = model.write(tmp_path / "own.gguf")
    code, facts = inspect(path)
    # Whether the key is known to the reader of the configuration or not, the layout is what it says.
    assert (of_type(facts, "I2_S")["layout"], of_type(facts, "I2_S")["by"]) == (layout, "file")
    assert code == (0 if facts["problem"] is None else 1)
    other = "64" if stated != "64" else "128"
    group = of_type(inspect(path, "--i2s", other)[1], "I2_S")
    assert group["by"] == "option"
    assert any("the file states" in note for note in group["notes"])


@pytest.mark.parametrize(
    ("packed", "options", "layout"),
    [("i2_s", {"block": 128}, THREE[0]), ("i2_s", {"block": 64}, THREE[1]), ("i2_s_4rows", {}, THREE[2])],
)
def test_a_twin_tells_128_from_64_and_from_four_rows(
    tmp_path: Path, packed: str, options: dict[str, int], layout: str
) -> None:
    code, facts = inspect(foreign(tmp_path, packed, **options), "--twin", hf(tmp_path / "twin"))
    group = of_type(facts, "I2_S")
    assert (code, group["layout"], group["by"]) == (0, layout, "twin")
    found = agreements(group)
    assert found.pop(layout) == 1
    assert all(0.3 < share < 0.6 for share in found.values()), found
    assert facts["twin"]["equal"]
    assert (
        group["advice"]
        == "for the other commands: --i2s " + dict(zip(THREE, ("128", "64", "4rows"), strict=True))[layout]
    )


def test_an_option_that_the_twin_contradicts_is_not_believed(tmp_path: Path) -> None:
    code, facts = inspect(foreign(tmp_path, "i2_s", block=64), "--i2s", "128", "--twin", hf(tmp_path / "twin"))
    group = of_type(facts, "I2_S")
    assert (code, group["layout"], group["by"]) == (1, "i2_s block=64", "twin")
    assert group["contradicted"] == "the option says i2_s block=128, and the twin contradicts it"


def test_a_twin_that_does_not_know_its_own_layout_decides_nothing(tmp_path: Path) -> None:
    """Two files of blocks of 64, both read as 128, agree at 100 %: the twin would confirm whatever is asked."""
    first = foreign(tmp_path, "i2_s", block=64)
    code, facts = inspect(first, "--twin", first)
    assert (code, facts["kind"]) == (3, "twin-ambiguous")


def test_a_twin_of_another_model_is_none(tmp_path: Path) -> None:
    code, facts = inspect(foreign(tmp_path), "--twin", "kjv-ar")
    assert code == 4  # the same names, other shapes: nothing agrees, nothing is decided
    assert not facts["twin"]["equal"]
    assert facts["twin"]["missing"]["here"][0] == "layers.1.down"
    assert "not the same model" in shown(80, foreign(tmp_path), "--twin", "kjv-ar")
    code, facts = inspect(hf(tmp_path), "--twin", "kjv-ar")
    assert code == 1


@pytest.mark.parametrize(("type_id", "name", "dtype"), [(34, "tq1_0", "TQ1_0"), (35, "tq2_0", "TQ2_0")])
def test_a_type_with_one_layout_is_certain_by_its_type(tmp_path: Path, type_id: int, name: str, dtype: str) -> None:
    path = repacked(gguf(tmp_path), type_id, packing(name), same).write(tmp_path / "m.gguf")
    code, facts = inspect(path, "--twin", hf(tmp_path / "twin"))
    group = of_type(facts, dtype)
    assert (code, group["layout"], group["by"]) == (0, name, "type")
    assert agreements(group) == {name: 1}


def test_type_42_is_certain_by_its_span_and_opened_so(tmp_path: Path) -> None:
    for block in (64, 128):
        path = repacked(gguf(tmp_path / str(block)), TYPE_Q2_0, packing("q2_0", block=block), same)
        code, facts = inspect(path.write(tmp_path / f"{block}.gguf"))
        group = of_type(facts, "Q2_0")
        assert (code, group["layout"], group["by"]) == (0, f"q2_0 block={block}", "bytes")
        assert group["advice"] == (None if block == 64 else "for the other commands: --q2-0-block 128")


def test_gaps_between_tensors_leave_every_layout_open(tmp_path: Path) -> None:
    model = gguf(tmp_path)
    at, tensors = 0, []
    for tensor in model.tensors.values():
        tensors.append(replace(tensor, offset=at))
        at = g.aligned(at + len(tensor.data), 32) + 32
    path = tmp_path / "gaps.gguf"
    path.write_bytes(g.gguf(model.pairs.values(), tensors))
    code, facts = inspect(path)
    group = of_type(facts, "I2_S")
    assert (code, group["verdict"]) == (4, "ambiguous")
    assert [h["layout"] for h in group["hypotheses"] if h["verdict"] == "fits"] == THREE
    code, facts = inspect(path, "--twin", hf(tmp_path / "twin"))
    assert (code, of_type(facts, "I2_S")["layout"], facts["twin"]["equal"]) == (0, THREE[0], True)


@pytest.mark.parametrize(("verdict", "code"), [("certain", 0), ("nothing fits", 1), ("ambiguous", 4)])
def test_only_certain_layouts_are_exit_code_0(verdict: str, code: int) -> None:
    """Even where everything else is well: a model that opens, no twin that differs."""
    groups = [{"verdict": "certain", "contradicted": None}, {"verdict": verdict, "contradicted": None}]
    assert _exit_code({"fingerprint": groups, "twin": None, "problem": None}) == code


def test_nothing_in_a_file_reaches_the_terminal_as_an_escape_markup_or_emoji(tmp_path: Path) -> None:
    model = gguf(tmp_path)
    model.set("general.architecture", g.STRING, "\x1b[31mEVIL")
    path = model.write(tmp_path / "evil.gguf")
    text = shown(120, path)
    assert "\x1b" not in text
    assert "architecture\\x1b[31mEVIL" in "".join(text.split())  # the width of the page cuts where it likes
    folder = hf_parts(tmp_path / "names")
    folder.entries["\x1b[2J[bold]x[/] :bug: [/nope]"] = Entry("F32", (1,), np.ones(1, "<f4").tobytes())
    text = shown(200, folder.write(tmp_path / "named"), "--tensors")
    assert "\x1b" not in text
    assert "\\x1b[2J[bold]x[/]:bug:[/nope]" in "".join(text.split())


def test_a_folder_names_its_layout_by_its_shapes(tmp_path: Path) -> None:
    code, facts = inspect(hf(tmp_path))
    group = of_type(facts, "U8")
    assert (code, group["layout"], group["by"]) == (0, "hf", "bytes")
    assert facts["schema"] == "tritgold.inspection/2"


def test_float_masters_are_compared_as_they_are_quantised(tmp_path: Path) -> None:
    """An online folder of Gaussian masters against its trits, which are in part not those of the seeded model."""
    model = hf_parts(tmp_path)
    model.config["quantization_config"] = {
        "quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online",
    }  # fmt: skip
    for name in [name for name in model.entries if name.endswith("weight_scale")]:
        scale = model.floats(name)[0]
        weight = name.removesuffix("_scale")
        entry = model.entries[weight]
        trits = packing("hf").unpack(entry.data, (4 * entry.shape[0], entry.shape[1])).trits
        # 1.25 to 0.75 of the scale: absmean finds the same trits.
        spread = 1 + 0.25 * np.sin(np.arange(trits.size)).reshape(trits.shape)
        values = (trits * scale * spread).astype(np.float32)
        model.entries[weight] = Entry("F32", trits.shape, values.tobytes())
        del model.entries[name]
    code, facts = inspect(model.write(tmp_path / "online"), "--twin", hf(tmp_path / "twin"))
    assert facts["problem"] is None
    assert facts["weights"]["masters"]
    assert facts["weights"]["bits_per_weight"] == 32
    assert facts["twin"]["differences"] == []
    assert facts["twin"]["compared"] == 7
    # absmean of a ternary matrix is its scale times the share of non-zeros: not the scale beside the trits.
    assert code == 1
    assert "another scale" in facts["twin"]["scales"][0]["fault"]


def test_bits_per_weight_count_the_scales(tmp_path: Path) -> None:
    """7 matrices: 6 of 256 x 256 less k and v of 128 x 256, each 2 bits and 32 bytes of trailer."""
    _, facts = inspect(foreign(tmp_path))
    weights = 5 * 256 * 256 + 2 * 128 * 256
    assert facts["weights"]["ternary"] == weights
    assert facts["weights"]["bits_per_weight"] == round(8 * (weights / 4 + 7 * 32) / weights, 4)


def punch(path: Path, begin: int, size: int) -> None:
    """Write the file again with a hole; skips where the file system keeps no account of them."""
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        file.write(data[:begin])
        file.seek(begin + size)
        file.write(data[begin + size :])
        file.truncate(len(data))
    with path.open("rb") as file:
        if os.lseek(file.fileno(), 0, getattr(os, "SEEK_HOLE", os.SEEK_END)) >= len(data):
            pytest.skip("a file system without holes")


def test_a_hole_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    """Also where the container itself would be the first to complain: the hole is why."""
    middle, start, tail = (foreign(tmp_path / where) if (tmp_path / where).mkdir() is None else Path()
                           for where in ("middle", "start", "tail"))  # fmt: skip
    size = middle.stat().st_size
    assert inspect(middle)[0] == 4
    for path, begin, length in ((middle, 1 << 16, 1 << 16), (start, 0, 1 << 16), (tail, 1 << 16, size - (1 << 16))):
        punch(path, begin, length)
        code, facts = inspect(path)
        assert (code, facts["kind"]) == (3, "sparse")
        assert re.search(r"1 hole, the first of bytes \d+ to \d+", facts["got"])
    folder = hf(tmp_path)
    punch(folder / "model.safetensors", 1 << 16, 1 << 16)
    assert inspect(folder)[1]["kind"] == "sparse"


@pytest.mark.parametrize("shape", [(160, 1), (96, 1), (3, 32), (0, 128), (128, 0)])
@pytest.mark.parametrize("alone", [False, True])
def test_an_i2_s_matrix_that_is_no_block_is_looked_at(tmp_path: Path, shape: tuple[int, int], alone: bool) -> None:
    """No whole block, or nothing at all; among others, or the only one: a finding, never a crash.

    3 x 32 weights fit the type that had the number of I2_S before, and nothing else.
    """
    model = gguf(tmp_path)
    name = "blk.0.attn_q.weight"
    data = bytes(shape[0] * shape[1] // 4 + 32 if all(shape) else 0)
    if alone:
        model.tensors = {n: t for n, t in model.tensors.items() if t.type_id != g.TYPE_I2_S or n == name}
    model.tensors[name] = replace(model.tensors[name], shape=shape, data=data)
    code, facts = inspect(model.write(tmp_path / "m.gguf"))
    assert code in (1, 3)
    assert facts["problem"]["kind"]


def test_a_truncated_file_is_unreadable(tmp_path: Path) -> None:
    path = foreign(tmp_path)
    path.write_bytes(path.read_bytes()[:-64])
    code, facts = inspect(path)
    assert (code, facts["kind"]) == (3, "truncated")
    assert inspect(tmp_path / "absent.gguf")[0] == 3


def test_missing_and_unused_tensors_are_listed(tmp_path: Path) -> None:
    model = hf_parts(tmp_path)
    del model.entries[f"{Q}.weight_scale"]
    model.entries[f"{LAYER}.self_attn.other_scale"] = Entry("F32", (1,), np.ones(1, "<f4").tobytes())
    code, facts = inspect(model.write(tmp_path / "damaged"))
    assert code == 1
    assert f"{Q}.weight: packed, but without a weight_scale" in facts["problem"]["message"]
    assert f"unused: {LAYER}.self_attn.other_scale" in facts["problem"]["message"]
    assert next(f for f in facts["health"] if f["kind"] == "scale-missing")["first"] == f"{Q}.weight"


def test_the_scale_rule_that_a_config_does_not_say_is_not_assumed(tmp_path: Path) -> None:
    model = hf_parts(tmp_path)
    del model.config["quantization_config"]
    code, facts = inspect(model.write(tmp_path / "silent"), "--twin", hf(tmp_path / "twin"))
    assert (code, facts["problem"]["kind"]) == (1, "quantization-missing")
    assert facts["twin"]["equal"]  # taken as multiplying, which is what they are


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_stays_within_the_terminal(tmp_path: Path, width: int) -> None:
    for arguments in (
        (foreign(tmp_path), "--tensors"),
        (hf(tmp_path / "b"), "--tensors", "--twin", hf(tmp_path / "c")),
    ):
        text = shown(width, *arguments)
        assert max(map(len, text.splitlines())) <= width
        assert "Health: nothing odd" in " ".join(text.split())
    assert "It opens as a model, and its layout is certain." in text


def test_inspecting_needs_no_network_and_prints_json_alone(tmp_path: Path) -> None:
    _, facts = inspect(foreign(tmp_path), "--tensors")
    look = facts["weights"]["linears"][0]
    assert sum(look["trits"]) == 256 * 256
    assert look["findings"] == []
    assert json.loads(json.dumps(facts)) == facts
