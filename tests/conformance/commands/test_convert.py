"""tritgold convert: the options, what it prints, its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import embedded_model
from tritgold_conformance.cli import main


def tritgold(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


def test_an_embedded_model_is_converted(tmp_path: Path) -> None:
    code, output = tritgold("convert", "kjv-ar", tmp_path / "m.gguf", "--to", "i2_s")
    assert code == 0
    assert "i2_s, architecture bitnet-b1.58, opened again and proved equal to kjv-ar" in output
    assert "I2_S        42 tensors        1,180,992 bytes" in output
    assert "42 linear weights of 2.0023 bits a trit, scales included" in output
    with embedded_model("kjv-ar") as path:
        assert open_checkpoint(tmp_path / "m.gguf").model_hash() == open_checkpoint(path).model_hash()


def test_json(tmp_path: Path) -> None:
    code, output = tritgold("convert", "kjv-ar", tmp_path / "m.bin", "--to", "sglbitnt", "--json")
    facts = json.loads(output)
    assert (code, facts["schema"], facts["proved"]) == (0, "tritgold.conversion/1", True)
    assert facts["types"]["U8"] == {"tensors": 42, "bytes": 1179648}


def test_a_refusal_is_exit_code_3(tmp_path: Path) -> None:
    code, output = tritgold("convert", "kjv-ar", tmp_path / "m.gguf", "--to", "tl1", "--json")
    assert (code, json.loads(output)["kind"]) == (3, "no-tile")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_target_is_usage(tmp_path: Path) -> None:
    code, output = tritgold("convert", "kjv-ar", tmp_path / "m.gguf", "--to", "q4_0")
    assert code == 2
    assert "'tq1_0'" in output


@pytest.mark.parametrize("tile", ["x", "1", "256,128,32,1", "-1,2", "256x256=", "256=32,96", "٣,٤"])
def test_a_tile_that_is_none(tile: str, tmp_path: Path) -> None:
    code, output = tritgold("convert", "kjv-ar", tmp_path / "m.gguf", "--to", "tl1", "--tile", tile)
    assert (code, "packing-option" in output) == (3, True)


def test_tiles_by_shape_and_by_ini(tmp_path: Path) -> None:
    """One shape has its own; the ini says them all in the original's words."""
    ini = tmp_path / "kernel_config.ini"
    shapes = [(256, 256), (128, 256), (768, 256), (256, 768)]
    sections = [f"[Kernels_{i}]\nm = {m}\nk = {k}\nbm = 64\nbk = 64\nbmm = 32\n" for i, (m, k) in enumerate(shapes)]
    ini.write_text("\n".join(sections))
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    assert tritgold("convert", "kjv-ar", one, "--to", "tl1", "--tile-ini", ini)[0] == 0
    words = ("--tile", "64,64,32", "--tile", "256x768=128,128,64")
    assert tritgold("convert", "kjv-ar", other, "--to", "tl1", *words)[0] == 0
    assert open_checkpoint(one).model_hash() == open_checkpoint(other).model_hash()
    assert one.stat().st_size == other.stat().st_size
    assert one.read_bytes() != other.read_bytes()


def test_an_arm_file_is_repaired(tmp_path: Path) -> None:
    arm, x86 = tmp_path / "arm.gguf", tmp_path / "x86.gguf"
    assert tritgold("convert", "kjv-ar", arm, "--to", "i2_s", "--to-i2s", "64")[0] == 0
    assert tritgold("convert", arm, x86, "--to", "i2_s")[0] == 0
    assert open_checkpoint(arm).model_hash() == open_checkpoint(x86).model_hash()
    assert arm.read_bytes() != x86.read_bytes()


def test_a_converted_model_runs_as_its_source_does(tmp_path: Path) -> None:
    """The tokenizer travels in the file."""
    path = tmp_path / "m.gguf"
    assert tritgold("convert", "kjv-ar", path, "--to", "tq2_0")[0] == 0
    words = ("--prompt", "In the beginning", "--max-tokens", "5", "--json")
    first, second = (json.loads(tritgold("run", model, *words)[1]) for model in ("kjv-ar", path))
    assert first["ids"] == second["ids"]
    assert first["text"] == second["text"]


def test_a_lossy_step_is_never_called_proved_equal(tmp_path: Path) -> None:
    code, output = tritgold("convert", "kjv-ar", tmp_path / "m.gguf", "--to", "i2_s", "--embedding", "f16")
    assert code == 0
    assert "proved equal" not in output
    assert "not lossless: from kjv-ar" in output
    assert "embedding rounded, as asked" in output
