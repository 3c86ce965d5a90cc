"""`tritgold inspect`: packed uint8 in a folder, in a bare safetensors file and in SGLBITNT."""

from pathlib import Path

import numpy as np
from inspected import gguf, hf, hf_parts, inspect, of_type, repacked
from small_models import Entry

from tritgold.formats.container import PlannedTensor
from tritgold.formats.packings import packing
from tritgold.formats.sglbitnt_file import write_sglbitnt


def test_packed_rows_of_four_columns_are_ambiguous_even_with_a_config(tmp_path: Path) -> None:
    """uint8 [out, in / 4] in a Hugging Face folder: three layouts fit, and the model is refused as well."""
    model = hf_parts(tmp_path)
    for name, entry in model.entries.items():
        if entry.dtype == "U8":
            trits = packing("hf").unpack(entry.data, (4 * entry.shape[0], entry.shape[1])).trits
            model.entries[name] = Entry("U8", (trits.shape[0], trits.shape[1] // 4), packing("sequential").pack(trits))
    path = model.write(tmp_path / "sequential")
    code, facts = inspect(path)
    group = of_type(facts, "U8")
    assert code == 4
    assert [h["layout"] for h in group["hypotheses"] if h["verdict"] == "fits"] == [
        "sglbitnt",
        "sequential order=lsb",
        "sequential order=msb",
    ]
    code, facts = inspect(path, "--twin", hf(tmp_path / "twin"))
    assert (of_type(facts, "U8")["layout"], facts["problem"]["kind"], code) == (
        "sequential order=lsb",
        "tensor-shape",
        1,
    )


def test_a_bare_safetensors_file_is_looked_at_and_decided_by_a_twin(tmp_path: Path) -> None:
    path = hf(tmp_path) / "model.safetensors"
    code, facts = inspect(path)
    assert (code, facts["problem"]["kind"], facts["config"]) == (4, "no-config", None)
    assert of_type(facts, "U8")["layout"] is None
    code, facts = inspect(
        path,
        "--twin",
        repacked(gguf(tmp_path / "t"), 35, packing("tq2_0"), lambda trits: trits).write(tmp_path / "t.gguf"),
    )
    assert (code, of_type(facts, "U8")["layout"]) == (1, "hf")
    assert facts["twin"]["equal"]


def sglbitnt(tmp_path: Path, layout: str) -> Path:
    """The model as an SGLBITNT file, its packed tensors [out, in / 4] in any layout of four weights a byte."""
    model = hf_parts(tmp_path)
    scales: dict[str, np.float32] = {}
    tensors: list[PlannedTensor] = []
    for name, entry in model.entries.items():
        if entry.dtype == "U8":
            trits = packing("hf").unpack(entry.data, (4 * entry.shape[0], entry.shape[1])).trits
            data = packing(layout).pack(trits)
            tensors.append(
                PlannedTensor(name, "U8", (len(trits), len(data) // len(trits)), len(data), lambda d=data: [d])
            )
            scales[name] = model.floats(f"{name}_scale")[0]
        elif not name.endswith("_scale"):
            data = model.floats(name).tobytes()
            tensors.append(PlannedTensor(name, "F32", entry.shape, len(data), lambda d=data: [d]))
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    write_sglbitnt(tmp_path / "m.bin", config, tensors, scales)
    return tmp_path / "m.bin"


def test_sglbitnt_is_certain_by_its_type_and_a_twin_tells_what_it_is_not(tmp_path: Path) -> None:
    code, facts = inspect(sglbitnt(tmp_path, "sglbitnt"), "--twin", hf(tmp_path / "twin"))
    group = of_type(facts, "U8")
    assert (code, group["layout"], group["by"]) == (0, "sglbitnt", "type")
    assert facts["twin"]["equal"]
    assert facts["container"].startswith("SGLBITNT version 1")
    assert facts["weights"]["bits_per_weight"] == round(2 + 8 * 7 * 4 / facts["weights"]["ternary"], 4)
    # What WrinkleFree's Python fallback reads, written by a converter that believed it.
    code, facts = inspect(sglbitnt(tmp_path / "bad", "sequential"), "--twin", hf(tmp_path / "twin"))
    causes = {difference["looks_like"] for difference in facts["twin"]["differences"]}
    assert (code, causes) == (1, {"sequential bytes, least significant pair first, read as I2_S"})
