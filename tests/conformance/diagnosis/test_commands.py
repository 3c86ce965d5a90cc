"""tritgold faults, tritgold diagnose, and the diagnosis at the end of tritgold check."""

import json
from pathlib import Path

import pytest
from tritgold_command import call, parsed

from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.faults import FAULTS

ENGINE = "faulty_engines:Faulty"  # scale divided
RUN = ("--model", "seeded", "--tokens", 12)


def test_faults_lists_all_of_them_and_those_of_an_area() -> None:
    text = call("faults").stdout
    assert all(f"  {name} " in text for name in FAULTS)
    assert f"{len(FAULTS)} faults" in text
    listed = parsed(call("faults", "--area", "attention", "--json"))
    assert listed["schema"] == "tritgold.faults/1"
    assert {f["area"] for f in listed["faults"]} == {"attention"}
    assert call("faults", "--area", "nonsense").exit_code == 2


def test_show_says_what_a_fault_is_and_what_cannot_show_it() -> None:
    text = call("faults", "show", "rope-interleaved").stdout
    assert "Neighbours are rotated together" in text
    assert "kvark/meganeura #38" in text
    assert "the first token, prefilled alone" in text
    assert parsed(call("faults", "show", "silu", "--json"))["shown_by"]["level"] == "operations"
    unknown = call("faults", "show", "silly")
    assert unknown.exit_code == 3
    assert "nearest: silu" in unknown.stderr


def test_diagnose_names_the_fault_with_its_distance_and_the_next_best() -> None:
    result = call("diagnose", "--engine", ENGINE, *RUN, "--no-unseen")
    assert result.exit_code == 1, result.output
    assert "First divergence: layers.0.q.out" in result.stdout
    assert "1. scale-divided" in result.stdout
    assert "the next best is" in result.stdout
    data = parsed(call("diagnose", "--engine", ENGINE, *RUN, "--no-unseen", "--json"))
    assert [f["fault"] for f in data["faults"]] == ["scale-divided"]
    assert data["could_not_see"] is None


def test_diagnose_has_nothing_to_say_of_a_right_engine() -> None:
    result = call("diagnose", "--engine", "reference", *RUN, "--no-unseen")
    assert result.exit_code == 0
    assert "Nothing to explain." in result.stdout


def test_an_engine_is_diagnosed_in_its_own_mode_or_in_the_one_that_is_said(tmp_path: Path) -> None:
    write_seeded_model(tmp_path, Shape(seed=7, hidden=512, inter=512, layers=1, heads=4, kv_heads=2, context=16))
    words = ("diagnose", "--engine", "faulty_engines:InBlocks", "--model", tmp_path, "--tokens", 8, "--no-unseen")
    own = call(*words)
    assert own.exit_code == 0, own.output
    golden = call(*words, "--mode", "golden")
    assert golden.exit_code == 1
    assert "1. per-256-block" in golden.stdout


@pytest.mark.parametrize("option", [(), ("--no-diagnose",)])
def test_check_ends_with_a_diagnosis_when_it_fails(option: tuple[str, ...]) -> None:
    result = call("check", "--engine", ENGINE, *RUN, "--no-speed", *option)
    assert result.exit_code == 1
    assert ("1. scale-divided" in result.stdout) is not bool(option)


def test_an_engine_that_is_late_with_an_answer_is_not_taken_to_have_refused() -> None:
    late = ("--engine", "faulty_engines:HangingWriter", *RUN, "--timeout", 1)
    result = call("diagnose", *late, "--no-unseen", "--json")
    assert result.exit_code == 3
    assert (parsed(result)["kind"], parsed(result)["message"]) == ("engine-timeout", "generate took longer than 1 s")


def test_a_loop_that_hangs_cannot_be_judged() -> None:
    """Generation is a level of a check: its time that is up is not a verdict, whatever else was answered."""
    result = call("check", "--engine", "faulty_engines:HangingWriter", *RUN, "--no-speed", "--timeout", 1, "--json")
    assert result.exit_code == 3
    assert "generate took longer than 1 s" in result.output


def test_the_mode_that_an_engine_follows_is_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_seeded_model(model, Shape(seed=7, hidden=512, inter=512, layers=1, heads=4, kv_heads=2, context=16))
    words = ("check", "--model", model, "--tokens", 8, "--no-speed", "--mode", "golden")
    files = [tmp_path / f"r.{suffix}" for suffix in ("json", "md", "html", "xml")]
    result = call(*words, "--engine", "faulty_engines:InBlocks", *(w for file in files for w in ("--report", file)))
    said = "It matches mode llama-cpp-q8_k/1, not golden/1, by which it was judged: --mode llama-cpp-q8_k"
    assert result.exit_code == 1
    assert said in result.stdout
    assert "Diagnosis" not in result.stdout, "its mode is not a fault"
    assert json.loads(files[0].read_text("utf-8"))["matches"] == "llama-cpp-q8_k/1"
    assert "It matches mode llama-cpp-q8" in files[1].read_text("utf-8")
    assert said in files[2].read_text("utf-8")
    assert 'name="matches" value="llama-cpp-q8_k/1"' in files[3].read_text("utf-8")
    assert "matches mode" not in call(*words, "--engine", "faulty_engines:Spoilt").stdout


def test_what_check_fails_is_never_nothing_to_explain() -> None:
    words = ("--engine", "faulty_engines:LastLayerOff", *RUN)
    checked, diagnosed = call("check", *words, "--no-speed"), call("diagnose", *words, "--no-unseen")
    for result in (checked, diagnosed):
        assert result.exit_code == 1, result.output
        assert "Nothing to explain" not in result.stdout
        assert "Nothing found beyond 0.01 of a token where codes are not shown (layers.3.down.out" in result.stdout
        assert "its verdict is valid: it does not conform" in result.stdout


def test_what_broken_ties_could_have_done_is_said() -> None:
    result = call("diagnose", "--engine", "faulty_engines:LogitsOff", *RUN, "--no-unseen")
    assert result.exit_code == 0, result.output
    assert "Nothing found beyond what broken ties do to statistics (logits is off by 0.0001" in result.stdout
