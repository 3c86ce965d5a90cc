"""The seeded model's numbers: of seed and place alone, and a large matrix of them never in memory whole."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from small_models import TINY

from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.golden import __main__ as program
from tritgold.golden import seeded

MASK = 2**64 - 1


def uniform(seed: int, counter: int) -> float:
    """One number of [0, 1): SplitMix64's output function in Python's integers, its upper 24 bits."""
    z = (seed * 0xD1342543DE82EF95 + counter * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return ((z ^ (z >> 31)) >> 40) / 2**24


def test_a_number_of_the_embedding_is_the_sum_of_its_twelve(tmp_path: Path) -> None:
    seeded.write_seeded_model(tmp_path, TINY)
    embedding = SafetensorsFile(tmp_path / "model.safetensors").tensors["model.embed_tokens.weight"].floats()
    count = TINY.vocab * TINY.hidden
    for row, column in ((0, 0), (0, 15), (7, 3), (258, 15)):
        at = row * TINY.hidden + column
        total = sum(uniform(TINY.seed, 1 + nth * count + at) for nth in range(12))
        assert embedding[row, column] == pytest.approx((total - 6) * 0.7, rel=2**-8)  # stored as bfloat16


def test_the_rows_at_once_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for rows in (4096, 259, 100, 1):
        monkeypatch.setattr(seeded, "ROWS", rows)
        folder = tmp_path / str(rows)
        folder.mkdir()
        seeded.write_seeded_model(folder, TINY)
        digests.append((folder / "model.safetensors").read_bytes())
    assert digests.count(digests[0]) == 4


def test_an_embedding_is_never_in_memory_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded, "ROWS", 1000)
    rows = seeded._Draws(158).normal_rows((20_000, 16), 0.7)
    tracemalloc.start()
    try:
        count = sum(np.count_nonzero(piece) for piece in rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count > 300_000
    assert peak < 2_000_000  # the matrix is 1.3 MB as float32 and 2.6 MB as float64; a piece takes 0.5 MB


def test_the_program_writes_a_new_folder_and_explains_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "SHAPES", {"seeded": TINY})
    assert program.main(["new/model"]) == 0
    assert (tmp_path / "new" / "model" / "config.json").is_file()
    for words, code, said in (
        (["--help"], 0, "usage: python -m tritgold.golden"),
        (["--tiny", "x"], 2, "--tiny"),
        (["other", "9b"], 2, "invalid choice: '9b'"),
        (["new/model"], 2, "new/model exists; name a new folder"),
    ):
        with pytest.raises(SystemExit) as ended:
            program.main(words)
        assert (ended.value.code, said in "".join(capsys.readouterr())) == (code, True), words
    assert [path.name for path in tmp_path.iterdir()] == ["new"], "no folder is named --help"
