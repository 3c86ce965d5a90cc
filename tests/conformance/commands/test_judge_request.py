"""The options of ask, check and diagnose are one list; of a class in the judge's own process every verdict says so."""

from pathlib import Path

import pytest
from tritgold_command import call, parsed

from tritgold_conformance.commands.ask import ask
from tritgold_conformance.commands.check import check
from tritgold_conformance.commands.diagnose import diagnose
from tritgold_conformance.engines import command

SAID = "judged in the judge's own process"


def test_the_commands_have_the_same_options() -> None:
    ours = ("engine", "in_process", "timeout", "mode", "model", "tokens", "seed", "ids", "linear_class", "code3")
    for one in (ask, check, diagnose):
        assert set(ours) <= {option.name for option in one.params}


@pytest.fixture
def in_process(model: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The words of a command whose engine is in this process: it could not be started in another."""
    monkeypatch.setattr(command, "run_program", None)
    return ("--engine", "process_engines:Right", "--model", model, "--tokens", 3, "--in-process")


def test_a_class_in_process_is_judged_and_every_report_says_so(in_process: tuple[object, ...], tmp_path: Path) -> None:
    files = [tmp_path / f"r{suffix}" for suffix in (".json", ".html", ".md", ".xml", ".svg")]
    words = [word for file in files for word in ("--report", file)]
    done = call("check", *in_process, "--no-speed", *words)
    assert done.exit_code == 0, done.output
    assert f"{SAID}." in done.stdout
    for file, said in zip(files, ('"in_process": true', SAID, SAID, SAID, "in process"), strict=True):
        text = file.read_text().replace("&#39;", "'")
        assert said in text, file
        if file.suffix == ".json":
            assert "--in-process" in text, "the command to repeat it has the option"


def test_a_diagnosis_in_process_says_so(in_process: tuple[object, ...]) -> None:
    words = ("diagnose", *in_process, "--no-unseen", "--level", "operations")  # it has none: nothing to search
    assert f"; {SAID}" in " ".join(call(*words).stdout.split())
    assert parsed(call(*words, "--json"))["in_process"]


def test_what_was_asked_in_process_is_judged_as_such(in_process: tuple[object, ...], tmp_path: Path) -> None:
    folder = tmp_path / "asked"
    assert call("ask", *in_process, "--no-speed", "-o", folder).exit_code == 0
    assert parsed(call("judge", folder, "--model", in_process[3], "--json"))["in_process"]


def test_in_a_process_of_its_own_nothing_is_said(model: Path) -> None:
    words = ("--engine", "reference", "--model", model, "--tokens", 3)
    report = parsed(call("check", *words, "--no-speed", "--json"))
    assert not report["in_process"]
    refused = call("check", *words, "--in-process")
    assert (refused.exit_code, "needs an engine module:Class; reference is not one" in refused.stderr) == (2, True)
