"""The benchmarks measure what they say; how fast anything is they leave to whoever runs them."""

import json
from pathlib import Path

import numpy as np
import pytest
from measure import conversion_speed, format_speed, opening_speed
from measure.format_speed import COLUMNS, IN_GGUF, LAYOUTS, ROWS, Row
from measure.opening_kinds import CONVERTED

from tritgold.convert import TARGETS
from tritgold.formats.packings import PACKINGS, packing


def test_every_packing_is_measured_on_a_matrix_that_it_can_hold() -> None:
    assert {name.split(" ")[0] for name in LAYOUTS} == PACKINGS.keys()
    for name, options in LAYOUTS.items():
        assert packing(name.split(" ")[0], **options).packed_size((ROWS, COLUMNS)) > ROWS * COLUMNS // 8


def test_rows_of_a_small_matrix() -> None:
    rows = format_speed.measured(["i2_s", "tq1_0", "q1_0"], runs=1, rows=32)
    assert [(row.name, row.by) for row in rows] == [
        *(("i2_s", by) for by in ("shifts", "table", "loop")),
        *(("tq1_0", by) for by in ("shifts", "gguf")),
        ("q1_0", "shifts"),
    ]
    assert all(row.weights == 32 * COLUMNS for row in rows)
    assert [row.size for row in rows] == [32 * COLUMNS // 4 + 32] * 3 + [32 * COLUMNS // 256 * 54] * 2 + [
        32 * COLUMNS // 128 * 18
    ]
    by = {(row.name, row.by): row for row in rows}
    loop, shifts = by["i2_s", "loop"], by["i2_s", "shifts"]
    assert loop.unpack is not None
    assert shifts.unpack is not None
    assert loop.unpack > shifts.unpack
    assert IN_GGUF.keys() <= LAYOUTS.keys()
    found = format_speed.facts(rows)
    assert json.loads(json.dumps(found))["rows"][0]["name"] == "i2_s"
    assert found["machine"]["numpy"] == np.__version__
    assert len(format_speed.table(rows).splitlines()) == 2 + len(rows)


def test_a_row_in_figures() -> None:
    """2560 x 6912 weights of 2 bits in a tenth of a second: 44 MB in 0.1 s."""
    row = Row("i2_s", "shifts", 2560 * 6912, 2560 * 6912 // 4, 0.1, None)
    assert row.gigabytes(row.pack) == pytest.approx(0.044237, rel=1e-4)
    assert row.megaweights(row.pack) == pytest.approx(176.9, rel=1e-3)
    assert row.gigabytes(row.unpack) is None
    assert format_speed.table([row]).endswith("| i2_s | shifts | 2.000 | 0.0442 | 177 |  |  |  |")


def test_a_matrix_without_zeros() -> None:
    assert np.unique(format_speed.matrix(2)).tolist() == [-1, 0, 1]
    assert np.unique(format_speed.matrix(2, zeros=False)).tolist() == [-1, 1]


def test_a_model_there_and_back(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    steps = conversion_speed.measure(folder, "seeded")
    assert [step.what for step in steps[1:]] == [
        "source -> i2_s.gguf",
        "i2_s.gguf -> tq2_0.gguf",
        "tq2_0.gguf -> back",
    ]
    # No upper limit: Linux counts the memory of the process that starts a child until the child's own program runs.
    assert all(step.seconds > 0.05 and step.peak > 20e6 for step in steps)
    found = conversion_speed.facts(steps, folder)
    assert found["equal"]
    assert json.dumps(found)
    assert found["source"]["model.safetensors"] == found["back"]["model.safetensors"]
    assert len(conversion_speed.table(steps).splitlines()) == 2 + 4
    path = folder / "back" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert not conversion_speed.facts(steps, folder)["equal"]
    path.unlink()
    assert not conversion_speed.facts(steps, folder)["equal"]


def test_a_step_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 2"):
        conversion_speed.measure(tmp_path / "new", "no-such-shape")


def test_each_kind_of_file_is_made_opened_and_read_once(tmp_path: Path) -> None:
    """Small files: a page that two tensors share counts for both, so that a second reading is what is looked for."""
    if not Path("/proc/self/io").exists():
        pytest.skip("what came from the disk is read from Linux's /proc")
    kinds = ("hf", "tq2_0 in shards", "hf, unpacked, two scales")
    rows = list(opening_speed.measure(tmp_path, "seeded", kinds))
    assert [row.kind for row in rows] == list(kinds)
    assert all(row.seconds > 0 and row.peak > 20e6 and row.read <= 3 * row.size for row in rows)
    assert not list(tmp_path.iterdir())
    assert len(opening_speed.table(rows).splitlines()) == 2 + len(kinds)
    assert json.dumps(opening_speed.facts(rows, "seeded"))
    with pytest.raises(RuntimeError, match="opening_kinds"):
        list(opening_speed.measure(tmp_path, "no-such-shape", ("hf",)))


def test_every_target_of_a_conversion_is_among_the_kinds() -> None:
    of_kinds = {options[1] for options in CONVERTED.values()}
    assert of_kinds == TARGETS.keys() - {"gguf-f32"}
