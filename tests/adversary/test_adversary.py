"""A sample of the adversary's engines through the command, and whether its runner can fail.

All of them: `make adversary`.
"""

import dataclasses
import json
import random
import runpy
import sys
from pathlib import Path

import proof
import pytest
import runner
from faulty.tokenizer import _digits
from not_yet import NOT_YET
from registry import ENTRIES, FOLDER, Entry, all_entries, made, right
from runner import REPOSITORY, Journal, Outcome, judged, run_entry

from tritgold.tokenizer import Tokenizer

ALL = all_entries()
SAMPLE = [
    "Flash7",
    "KeysBackwards",
    "LinearsNothing",
    "GainPlusOneShown",
    "Code3Zero",
    "ExitsInPrefill",
    "PatchedAbs",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def outcome(name: str, good: bool, group: str = "faulty") -> Outcome:
    return Outcome(name, group, "kernel", "", "", int(good), 0.1, good, "caught" if good else "MISSED", "")


def entry(group: str, unseen: str = "") -> Entry:
    return Entry("Any", group, "kind", "what", object, unseen)


@pytest.mark.parametrize("name", SAMPLE)
def test_sample_through_the_command(name: str, models: Path) -> None:
    found = run_entry(ALL[name], models)
    assert found.good, found
    assert found.code == {"right": 0, "faulty": 1}.get(found.group, found.code)


def test_as_many_as_asked_for() -> None:
    groups = [e.group for e in ALL.values()]
    assert groups.count("faulty") - sum(bool(e.unseen) for e in ALL.values()) >= 120
    assert groups.count("right") >= 30
    assert groups.count("cheats") >= 30


def test_engines_are_independent() -> None:
    for file in [*FOLDER.glob("*_engine.py"), *FOLDER.glob("faulty/*.py"), *FOLDER.glob("right/*.py")]:
        imports = [line for line in file.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))]
        assert not [line for line in imports if "tritgold" in line], file


def test_what_is_not_caught_yet_is_listed_by_kind() -> None:
    for name, hole in NOT_YET.items():
        assert name in ALL
        assert not ALL[name].unseen, name
        assert hole


def test_digits_apart_cannot_be_seen() -> None:
    """Why DigitsApart is listed as unseen: digits and white space stand alone, so that cutting at them does nothing.

    Vocabularies in which it shows: tests/conformance/judging/test_tokenizer_families.py.
    """
    path = REPOSITORY / "reference" / "tritgold" / "golden" / "kjv-ar" / "tokenizer.json"
    longer = [token for token in json.loads(path.read_text())["model"]["vocab"] if len(token) > 1 and token[0] != "<"]
    assert len(longer) > 1000
    assert not [token for token in longer if any(letter.isdigit() for letter in token)]
    assert not [token for token in longer if set(token[1:]) & set("\u0120\u010a\u0109\u010d")], "spaces, lines, tabs"
    tokenizer = Tokenizer(path)
    draw = random.Random(3)
    for _ in range(300):
        text = "".join(draw.choice([" ", "  ", "5", "12", "a", "the", "\n", "'s", ".", "é", "²"]) for _ in range(9))
        pieces = [i for piece in _digits(text) for i in tokenizer.encode(piece, special=False)]
        assert pieces == tokenizer.encode(text, special=False), text


@pytest.mark.parametrize(
    ("group", "unseen", "good"),
    [
        ("right", "", {0}),
        ("faulty", "", {1, 2, 3, 5, 124, -9}),
        ("cheats", "", {1, 2, 3, 5, 124, -9}),
        ("faulty", "no input shows it", {0, 1, 2, 3, 5, 124, -9}),
    ],
)
def test_exit_codes_judged(group: str, unseen: str, good: set[int]) -> None:
    assert {code for code in (0, 1, 2, 3, 5, 124, -9) if judged(entry(group, unseen), code)[0]} == good


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two entries"):
        right("twice")(made("PlainLogits"))
    assert ENTRIES["PlainLogits"].what != "twice"


def test_journal_goes_on_where_it_stopped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "j.jsonl")
    journal.add(outcome("A", True))
    journal.add(outcome("B", False))
    with journal.path.open("a") as file:
        file.write('{"name": "C", "gro')  # a run that was ended
    again = Journal(journal.path)
    assert [o.name for o in again.of(["B", "C", "A"])] == ["B", "A"]
    assert again.outcomes["B"] == outcome("B", False)


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    code, said = runner._finished(
        [sys.executable, "-uc", "import time; print('began'); time.sleep(60)"], tmp_path, {}, 3
    )
    assert (code, said) == (124, "began")


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["adversary", *words])
    return runpy.run_path(str(FOLDER / "__main__.py"))["main"]()


def test_runner_fails_where_an_outcome_is_not_as_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = {"KeysBackwards": 1, "PlainLogits": 0}

    def run(one: Entry, folder: Path, limit: float) -> Outcome:
        good, verdict = judged(one, codes[one.name])
        return dataclasses.replace(
            outcome(one.name, good, one.group), code=codes[one.name], verdict=verdict, kind=one.kind
        )

    monkeypatch.setattr(runner, "run_entry", run)
    only = ("--only", "KeysBackwards", "--only", "PlainLogits", "--journal")
    assert run_main(monkeypatch, *only, str(tmp_path / "a")) == 0
    assert "2 of 2" in capsys.readouterr().out
    codes["KeysBackwards"] = 0
    assert run_main(monkeypatch, *only, str(tmp_path / "a"), "--json") == 0, "the journal has the entry already"
    assert len(json.loads(capsys.readouterr().out)["outcomes"]) == 2
    assert run_main(monkeypatch, *only, str(tmp_path / "b"), "--out", str(tmp_path / "out.json")) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["entries"], found["as_expected"], found["unseen"]) == (2, 1, [])
    assert sorted(row[:3:2] for row in found["counts"]) == [["faulty", "MISSED"], ["right", "passes"]]
    assert "not as listed: KeysBackwards: MISSED, exit code 0" in capsys.readouterr().err
    codes.update(KeysBackwards=1, PlainLogits=1)
    assert run_main(monkeypatch, *only, str(tmp_path / "c")) == 1
    assert "PlainLogits: ACCUSED" in capsys.readouterr().err
    assert run_main(monkeypatch, "--only", "NoSuchEngine") == 2


@pytest.mark.parametrize("name", ["ThirdTime", "UnalignedPiece"])
def test_missed_faults_are_faults(name: str, models: Path) -> None:
    """Listed or not, they differ from the base engine where the judge does not look."""
    if not (models / "seeded").exists():
        runner.write_model("seeded", models / "seeded")
    sessions = (proof.pieces, proof.repeats)
    assert proof.difference(ALL[name], models, sessions)[0] > proof.NOISE
    assert proof.difference(ALL["FusedProducts"], models, sessions)[0] < proof.NOISE
