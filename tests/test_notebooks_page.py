"""Every command of docs/notebooks.md is there, with options that are there; every row of the checklist has one."""

import contextlib
import re
import shlex
from pathlib import Path

import click
import pytest

from tritgold_conformance.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "notebooks.md").read_text(encoding="utf-8")
COMMANDS = sorted({*re.findall(r"`(tritgold [^`]+)`", PAGE), *re.findall(r"^(tritgold .+)$", PAGE, re.MULTILINE)})
SYSTEMS = range(1, 74)  # of the checklist


def parsed(command: str) -> click.Context:
    """The context of the innermost command, its options read and checked, nothing run."""
    words = shlex.split(command)[1:]
    found = main.get_command(click.Context(main), words[0])
    assert found is not None, words[0]
    return found.make_context(words[0], words[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_is_one_that_there_is(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("llama-server", "bench.json", "dlm_server.yaml"):  # what a reader has made by then
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "answers").mkdir()
    with contextlib.suppress(click.exceptions.Exit):  # an option that answers by itself, as --help does
        parsed(command)


def test_measurements_of_the_page_are_there() -> None:
    folder = Path(__file__).parents[1] / "docs" / "_make" / "measure"
    named = re.findall(r"python -m measure\.(\w+)", PAGE)
    assert named
    assert [name for name in named if not (folder / f"{name}.py").is_file()] == []


def test_a_command_that_there_is_not_is_found() -> None:
    for command in ("tritgold bench --rows no-such-row", "tritgold bench --no-such-option", "tritgold run --decode no"):
        with pytest.raises(click.UsageError):
            parsed(command)


def test_every_row_of_the_checklist_has_a_command() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [0-9]", line)]
    assert all("`tritgold" in row for row in rows)
    named: set[int] = set()
    for row in rows:
        head = re.match(r"\| ([0-9, to]+) ", row)
        assert head is not None
        for part in head[1].split(","):
            first, _, last = part.strip().partition(" to ")
            named |= {*range(int(first), int(last or first) + 1)}
    assert sorted(set(SYSTEMS) - named) == []


def test_every_table_says_what_it_is() -> None:
    kinds = {"closed form", "closed form of a seed", "measured", "judged", "judged, measured", "none"}
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 60
    assert {row.split(" | ")[2].strip() for row in rows} <= kinds
