"""What differs from a twin, and which known misreading it looks like."""

from dataclasses import replace
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from inspected import agreements, gguf, hf, hf_parts, inspect, of_type, repacked, shown
from small_models import Q, bf16_entry, interleave

from tritgold.formats.packings import packing

HEAD_DIM = 64  # WIDE: 256 in 4 heads


def i_every_4(trits: np.ndarray) -> np.ndarray:
    """Row s is the true row (s % 4) * out / 4 + s // 4."""
    rows = np.arange(trits.shape[0])
    return trits[rows % 4 * (len(rows) // 4) + rows // 4]


def columns(trits: np.ndarray) -> np.ndarray:
    """Position 64h + 16g + r of every 128 is the true 32g + 16h + r."""
    c = np.arange(trits.shape[1])
    h, quarter, r = c % 128 // 64, c % 64 // 16, c % 16
    return trits[:, c // 128 * 128 + 32 * quarter + 16 * h + r]


def lsb(trits: np.ndarray) -> np.ndarray:
    """Position 4p + s of every 128 is the true 32 (3 - s) + p."""
    c = np.arange(trits.shape[1])
    return trits[:, c // 128 * 128 + 32 * (3 - c % 4) + c % 128 // 4]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (i_every_4, "rows unpacked as i::4, where the bytes hold quarters of the matrix"),
        (columns, "I2_S blocks of 128 read as 64: columns permuted inside every 128"),
        (lsb, "TQ2_0 read as consecutive, most significant pair first, or I2_S, least significant pair first"),
    ],
)
def test_a_converter_that_misread_its_source_is_found_out(tmp_path: Path, change, name: str) -> None:  # type: ignore[no-untyped-def]
    path = repacked(gguf(tmp_path), 35, packing("tq2_0"), change).write(tmp_path / "m.gguf")
    code, facts = inspect(path, "--twin", hf(tmp_path / "twin"))
    assert code == 1
    assert facts["problem"] is None
    found = facts["twin"]["differences"]
    assert [difference["looks_like"] for difference in found] == [name] * 7
    assert all(0.3 < difference["agreement"] < 0.6 for difference in found)
    assert facts["twin"]["scales"] == []
    assert f"7 differ: {name}" in " ".join(shown(80, path, "--twin", hf(tmp_path / "twin")).split())


def test_the_same_trits_in_another_type_have_another_name(tmp_path: Path) -> None:
    path = repacked(gguf(tmp_path), g.TYPE_I2_S, packing("i2_s"), lsb).write(tmp_path / "m.gguf")
    _, facts = inspect(path, "--twin", hf(tmp_path / "twin"), "--i2s", "128")
    causes = {difference["looks_like"] for difference in facts["twin"]["differences"]}
    assert causes == {"I2_S read sequentially, least significant pair first"}


def test_the_first_differing_trit_is_named(tmp_path: Path) -> None:
    def one(trits: np.ndarray) -> np.ndarray:
        changed = trits.copy()
        changed[5, 17] = 1 if changed[5, 17] < 1 else 0
        return changed

    path = repacked(gguf(tmp_path), 35, packing("tq2_0"), one).write(tmp_path / "m.gguf")
    code, facts = inspect(path, "--twin", hf(tmp_path / "twin"))
    first = facts["twin"]["differences"][0]
    assert (code, first["first"], first["looks_like"]) == (1, [5, 17], None)
    assert first["agreement"] == 1 - 1 / 65536
    assert agreements(of_type(facts, "TQ2_0"))["tq2_0"] < 1
    assert "99.99 %" in shown(120, path, "--twin", hf(tmp_path / "twin"))


def test_rows_permuted_for_interleaved_rope_under_an_architecture_that_has_halves(tmp_path: Path) -> None:
    """What llama.cpp's converter for Llama does to q and k, done to a BitNet file."""
    model = gguf(tmp_path, permute=True)
    _, facts = inspect(model.write(tmp_path / "m.gguf"), "--twin", hf(tmp_path / "twin"), "--i2s", "128")
    found = {d["name"]: d["looks_like"] for d in facts["twin"]["differences"]}
    name = "rows in the order of interleaved RoPE, where this architecture has halves"
    assert found == {"layers.0.q": name, "layers.0.k": name}
    assert facts["config"]["head_dim"] == HEAD_DIM


def test_rows_of_the_llama_architecture_are_put_back_before_they_are_compared(tmp_path: Path) -> None:
    from small_models import as_gguf, llama_like

    from tritgold.checkpoint import open_checkpoint
    from tritgold.golden.seeded import Shape

    shape = Shape(hidden=256, inter=256, layers=1, heads=4, kv_heads=2, context=16)
    twin = llama_like(tmp_path / "parts", shape).write(tmp_path / "twin")
    right = as_gguf(open_checkpoint(twin), "llama", permute=True).write(tmp_path / "right.gguf")
    code, facts = inspect(right, "--twin", twin, "--i2s", "128")
    assert (code, facts["twin"]["equal"]) == (0, True)
    wrong = as_gguf(open_checkpoint(twin), "llama").write(tmp_path / "wrong.gguf")
    code, facts = inspect(wrong, "--twin", twin, "--i2s", "128")
    name = "rows in halves for RoPE, where this architecture has them interleaved"
    assert {d["name"]: d["looks_like"] for d in facts["twin"]["differences"]} == {
        "layers.0.q": name,
        "layers.0.k": name,
    }
    assert code == 1


def test_a_scale_inverted_left_out_or_doubled_is_named(tmp_path: Path) -> None:
    model = gguf(tmp_path)
    changes = {"attn_q": lambda s: 1 / s, "attn_k": lambda _: 1.0, "ffn_up": lambda s: 2 * s, "attn_v": lambda s: -s}
    for name, change in changes.items():
        tensor = model.tensors[f"blk.0.{name}.weight"]
        scale = change(float(np.frombuffer(tensor.data[-32:-28], "<f4")[0]))
        data = tensor.data[:-32] + np.array([scale], "<f4").tobytes() + bytes(28)
        model.tensors[f"blk.0.{name}.weight"] = replace(tensor, data=data)
    code, facts = inspect(model.write(tmp_path / "m.gguf"), "--twin", hf(tmp_path / "twin"))
    assert code == 1
    assert facts["twin"]["differences"] == []
    assert {fault["first"].split(".")[2]: fault["fault"] for fault in facts["twin"]["scales"]} == {
        "attn_q": "inverted: the two scales multiply to 1",
        "attn_k": "left out: 1 in its place",
        "attn_v": "of the other sign",
        "ffn_up": "another scale: 2 times as large",
    }


def test_a_linear_class_that_turns_every_scale_round_is_found_out(tmp_path: Path) -> None:
    """The same stored scales under a config that divides by them."""
    model = hf_parts(tmp_path)
    model.config["quantization_config"]["linear_class"] = "bitlinear"
    code, facts = inspect(model.write(tmp_path / "wrong"), "--twin", hf(tmp_path / "twin"))
    assert code == 1
    (fault,) = facts["twin"]["scales"]
    assert (fault["fault"], fault["tensors"]) == ("inverted: the two scales multiply to 1", 7)
    # Dividing by the reciprocal is the same model.
    for name in [name for name in model.entries if name.endswith("weight_scale")]:
        model.entries[name] = bf16_entry(1 / model.floats(name))
    code, facts = inspect(model.write(tmp_path / "right"), "--twin", hf(tmp_path / "twin"))
    assert (code, facts["twin"]["scales"]) == (0, [])


def test_what_only_one_of_the_two_has_is_listed(tmp_path: Path) -> None:
    model = gguf(tmp_path)
    del model.tensors["blk.0.ffn_up.weight"]
    code, facts = inspect(model.write(tmp_path / "m.gguf"), "--twin", hf(tmp_path / "twin"))
    assert facts["twin"]["missing"] == {"here": ["layers.0.up"], "there": []}
    assert facts["twin"]["compared"] == 6
    assert not facts["twin"]["equal"]
    assert code == 1


def test_a_code_that_is_no_trit_agrees_with_none(tmp_path: Path) -> None:
    """The twin shows where the damage is, although no layout fits."""
    model = gguf(tmp_path)
    tensor = model.tensors["blk.0.attn_q.weight"]
    model.tensors["blk.0.attn_q.weight"] = replace(tensor, data=b"\xff" + tensor.data[1:])
    code, facts = inspect(model.write(tmp_path / "m.gguf"), "--twin", hf(tmp_path / "twin"))
    (difference,) = [d for d in facts["twin"]["differences"] if d["name"] == "layers.0.q"]
    assert difference["first"] == [0, 0]
    assert difference["agreement"] == 1 - 4 / 65536
    assert (code, facts["problem"]["kind"]) == (1, "code-3")


def test_a_twin_is_read_by_the_same_rules_and_refused_as_a_model_is(tmp_path: Path) -> None:
    path = gguf(tmp_path).write(tmp_path / "m.gguf")
    broken = hf_parts(tmp_path)
    del broken.entries[f"{Q}.weight"]
    code, facts = inspect(path, "--twin", broken.write(tmp_path / "broken"))
    assert (code, facts["error"]) == (3, "WeightsError")


def test_helper_interleave_is_the_permutation_that_the_table_names() -> None:
    """Row i of a head's first half goes to 2i: heads of 4 here."""
    rows = np.arange(8).reshape(8, 1)
    assert interleave(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert g.TYPE_I2_S == 36
