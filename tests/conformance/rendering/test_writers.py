"""Reports as files, saved ones read again, and what is known of both sides in them."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest

from tritgold.errors import FormatError, OutputError
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.error_map import COLUMNS, error_map
from tritgold_conformance.rendering.writers import FORMATS, require_formats, write_reports
from tritgold_conformance.results.diagnosis import Diagnosis, Named
from tritgold_conformance.results.report import Report, json_schema, read_report, to_json


def test_a_saved_report_is_the_same_report_in_every_format(
    reports: dict[str, Report], kind: str, tmp_path: Path
) -> None:
    report = reports[kind]
    if kind in ("failing", "hostile"):  # JSON keeps no half of a character
        whole = msgspec.structs.replace(report.engine, name="<b>", versions={})
        report = msgspec.structs.replace(report, engine=whole, model="m", mode="m", repeat="", machine={})
    saved = tmp_path / "report.json"
    write_reports(report, [saved])
    jsonschema.validate(json.loads(saved.read_text("utf-8")), json_schema())
    again = read_report(saved)
    for make in FORMATS.values():
        assert make(again) == make(report)


def test_infinite_distances_survive(reports: dict[str, Report], tmp_path: Path) -> None:
    far = Named(
        fault="a", summary="b", level="c", at="d", distance=0.0, golden=float("inf"), next_best=("e", float("inf"))
    )
    diagnosis = Diagnosis(
        verdict="named", engine="a", model="b", model_hash="c", tokens=[1], levels=[], first_divergence=None,
        faults=[far], unexplained=[], ranking=[],
    )  # fmt: skip
    path = tmp_path / "r.json"
    path.write_bytes(to_json(msgspec.structs.replace(reports["half"], diagnosis=diagnosis)))
    read = read_report(path).diagnosis
    assert read is not None
    assert read.faults == [far]
    assert "without it not comparable" in FORMATS[".md"](read_report(path))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda d: d.update(schema="tritgold.report/1"), "report-version"),
        (lambda d: d.update(schema=7), "report-version"),
        (lambda d: d.update(tokens="all"), "report-malformed"),
        (lambda d: d["levels"]["logits"].update(status="fine"), "report-malformed"),
        (lambda d: d.update(diagnosis=[]), "report-malformed"),
        (lambda d: d.update(diagnosis={"faults": 7}), "report-malformed"),
        (lambda d: d.pop("verdict"), "report-malformed"),
        (lambda d: d["levels"].pop("logits"), "report-malformed"),
        (lambda d: d["config"].pop("layers"), "report-malformed"),
        (lambda d: d["statistics"]["logits"].pop("engine"), "report-malformed"),
        (lambda d: d["free_run"]["errors"]["positions"].pop(), "report-malformed"),
    ],
)
def test_what_is_no_report_is_refused(reports: dict[str, Report], change: object, kind: str, tmp_path: Path) -> None:
    data = json.loads(to_json(reports["half"]))
    change(data)  # type: ignore[operator]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError) as caught:
        read_report(path)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(problem=None),
        lambda d: d.update(verdict="conforms"),
        lambda d: d["levels"]["logits"].update(status="passed"),
    ],
)
def test_what_could_not_be_judged_says_nothing_else(reports: dict[str, Report], change: object, tmp_path: Path) -> None:
    data = json.loads(to_json(reports["not judged"]))
    change(data)  # type: ignore[operator]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError):
        read_report(path)


@pytest.mark.parametrize("text", [b"", b"[1]", b"\xff", b"[" * 100_000, b'{"schema": NaN}', b"{}"])
def test_bytes_that_are_no_json_are_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(text)
    with pytest.raises(FormatError):
        read_report(path)


def test_names_of_a_strange_report_break_nothing(reports: dict[str, Report], tmp_path: Path) -> None:
    bad = [
        replace(c, name=name)
        for name, c in zip(("layers.", "layers.x", "layers.x.y", "a]", ""), reports["failing"].operations, strict=False)
    ]
    bad.append(
        Comparison("layers.99999999999999999999.q", "fails", 1, worst=[1], golden=1e308, engine=-1e308, max_abs=1e308)
    )
    strange = msgspec.structs.replace(
        reports["failing"], operations=bad, config={}, levels={"x": reports["failing"].levels["logits"]}
    )
    for make in FORMATS.values():
        if make is not FORMATS[".json"]:
            make(strange)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["a.pdf"], "report-suffix"),
        (["a"], "report-suffix"),
        (["no/a.md"], "no-folder"),
        (["a.md", "a.md"], "report-twice"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_name(names: list[str], kind: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        require_formats([tmp_path / name for name in names])
    assert caught.value.kind == kind


def test_errors_by_position_are_those_of_the_arrays() -> None:
    golden = {"a": np.array([[1.0, -4.0], [0.0, 0.0], [2.0, 1.0]]), "q.codes": np.array([[127], [1], [0]], np.int8)}
    engine = {
        "a": np.array([[1.0, -4.4], [0.0, 0.0], [np.nan, 1.0]]),
        "q.codes": np.array([[127], [2], [-127]], np.int16),
    }
    found = error_map(golden, engine, tokens=3)
    assert found.outputs["a"] == [pytest.approx(0.1), 0.0, None]
    assert found.outputs["q.codes"] == [0.0, 0.00787, 1.0]
    assert error_map(golden, {"a": np.zeros((2, 2))}, 3).outputs == {"a": [None, None, None]}
    assert error_map(golden, {"a": np.array([["x"] * 2] * 3)}, 3).outputs == {"a": [None, None, None]}


def test_a_long_input_has_the_worst_of_its_positions() -> None:
    golden, engine = np.ones((2 * COLUMNS + 3, 4)), np.ones((2 * COLUMNS + 3, 4))
    engine[5, 1] = 1.5
    found = error_map({"a": golden}, {"a": engine}, tokens=len(golden))
    assert len(found.positions) <= COLUMNS
    assert found.positions[1] == 3
    assert [e for e in found.outputs["a"] if e] == [0.5]
    assert found.outputs["a"][1] == 0.5


def test_probabilities_are_by_token_and_not_by_head() -> None:
    golden = np.full((2, 3, 3), 0.5)
    engine = golden.copy()
    engine[1, 2] *= 2
    assert error_map({"layers.0.probs": golden}, {"layers.0.probs": engine}, 3).outputs["layers.0.probs"] == [0, 0, 1]
