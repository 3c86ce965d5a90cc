"""`tritgold inspect`: which tiles a TL1 or TL2 file has, by option, by the file itself and by a twin."""

from pathlib import Path

import gguf_bytes as g
from inspected import gguf, hf, inspect, repacked
from small_models import as_gguf, llama_like

from tritgold.checkpoint import open_checkpoint
from tritgold.formats.packings import packing
from tritgold.golden.seeded import Shape

TYPE_TL1, TYPE_TL2 = 38, 39
TILE = {"BM": 128, "BK": 64, "bm": 64}


def tiled(folder: Path, stated: bool = False) -> Path:
    """A TL1 file of TILE, foreign or with the keys of the files that tritgold writes."""
    model = repacked(gguf(folder), TYPE_TL1, packing("tl1", **TILE), lambda trits: trits)
    for shape in ("256x256", "128x256") if stated else ():
        model.set(f"tritgold.tile.{shape}", g.ARRAY, g.array(g.U32, TILE.values()))
    return model.write(folder / "tiled.gguf")


def test_a_tile_that_is_not_said_is_not_known(tmp_path: Path) -> None:
    code, facts = inspect(tiled(tmp_path))
    assert code == 4
    assert facts["problem"]["kind"] == "no-tile"
    # A tile is chosen by the shape: 256 x 256, and 128 x 256 of k and v.
    assert [group["tensors"] for group in facts["fingerprint"]] == [5, 2]
    assert {group["verdict"] for group in facts["fingerprint"]} == {"ambiguous"}
    assert all("do not contain their tile" in group["notes"][-1] for group in facts["fingerprint"])
    assert "--tile BM,BK[,bm]" in facts["fingerprint"][0]["advice"]


def test_a_tile_is_certain_by_option_by_file_and_by_twin(tmp_path: Path) -> None:
    path = tiled(tmp_path)
    code, facts = inspect(path, "--tile", "128,64,64")
    assert (code, {group["by"] for group in facts["fingerprint"]}) == (0, {"option"})
    code, facts = inspect(path, "--twin", hf(tmp_path / "twin"))
    assert (code, {group["by"] for group in facts["fingerprint"]}) == (0, {"twin"})
    assert facts["fingerprint"][0]["advice"] == "for the other commands: --tile 256x256=128,64,64"
    _, facts = inspect(tiled(tmp_path / "own", stated=True))
    assert {(group["layout"], group["by"]) for group in facts["fingerprint"]} == {("tl1 BM=128 BK=64 bm=64", "file")}


def test_a_tile_against_the_files_own_is_noted_and_a_twin_tells_which_is_right(tmp_path: Path) -> None:
    path = tiled(tmp_path, stated=True)
    option = ("--tile", "256x256=64,64,32")
    code, facts = inspect(path, *option)
    group = facts["fingerprint"][0]
    assert (code, group["layout"], group["by"]) == (0, "tl1 BM=64 BK=64 bm=32", "option")
    said = "the file states tl1 BM=128 BK=64 bm=64 (tritgold.tile.256x256); the option overrides it"
    assert said in group["notes"]
    assert not any("the file itself" in note for note in facts["fingerprint"][1]["notes"])
    code, facts = inspect(path, *option, "--twin", hf(tmp_path / "twin"))
    group = facts["fingerprint"][0]
    assert (code, group["layout"], group["by"]) == (1, "tl1 BM=128 BK=64 bm=64", "twin")
    assert group["contradicted"] == "the option says tl1 BM=64 BK=64 bm=32, and the twin contradicts it"


def test_tl2_in_architecture_llama_has_the_tile_that_is_said(tmp_path: Path) -> None:
    """39 is MXFP4 there unless the span says TL2; the tile is TL2's all the same."""
    shape = Shape(hidden=256, inter=256, layers=1, heads=4, kv_heads=2, context=16)
    source = llama_like(tmp_path / "parts", shape).write(tmp_path / "source")
    model = as_gguf(open_checkpoint(source), "llama", permute=True)
    path = repacked(model, TYPE_TL2, packing("tl2", BM=32, BK=96), lambda trits: trits).write(tmp_path / "m.gguf")
    code, facts = inspect(path, "--tile", "32,96")
    assert {(group["layout"], group["by"]) for group in facts["fingerprint"]} == {("tl2 BM=32 BK=96 bm=32", "option")}
    assert code == 0
    assert inspect(path, "--tile", "32,96", "--twin", source)[1]["twin"]["equal"]
