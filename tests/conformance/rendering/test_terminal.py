"""What an engine says of itself is text on a terminal: it moves no cursor, has no colours, and begins no line."""

import io
import re

import pytest
from click.testing import CliRunner, Result

# A cursor up, a title, an 8-bit escape, a carriage return, right-to-left, a line that looks like a verdict, markup.
from hostile_engines import BAD
from rich.text import Text

from tritgold_conformance.cli import main
from tritgold_conformance.commands import printing
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.rendering.diagnosis import render as render_diagnosis
from tritgold_conformance.rendering.markdown import to_markdown
from tritgold_conformance.rendering.terminal import render
from tritgold_conformance.results.diagnosis import Diagnosis, Divergence, Named, Ranked
from tritgold_conformance.results.report import Report


def moves(text: str) -> set[str]:
    """Characters that a terminal obeys."""
    return {c for c in text if not c.isprintable() and c != "\n"}


def forged(text: str) -> list[str]:
    """Lines that the engine began."""
    return re.findall(r"^forged.*", text, re.MULTILINE)


def on_a_terminal(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_these_checks_can_fail() -> None:
    assert moves(BAD) == set("\x1b\x07\x9b\r\u202e\u2066\u200f")
    assert forged(BAD)


def test_the_console_obeys_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forgets to say that a text is a stranger's: the last door is shut."""
    for text in (BAD, Text(BAD)):
        console = printing.console()
        console.file = io.StringIO()
        console.print(text, markup=False)
        assert not moves(console.file.getvalue())
        assert "\\x1b[2A" in console.file.getvalue()


@pytest.mark.parametrize(
    ("verb", "engine", "code"),
    [("check", "Named", 1), ("diagnose", "NamedAndRight", 0), ("check", "Raises", 3), ("diagnose", "Raises", 3)],
)
def test_an_engine_is_text(verb: str, engine: str, code: int) -> None:
    words = ["--no-speed", "--no-diagnose", "--one-text"] if verb == "check" else ["--no-unseen"]
    done = on_a_terminal(verb, "--engine", f"hostile_engines:{engine}", "--model", "seeded", "--tokens", 3, *words)
    assert done.exit_code == code, done.output
    for stream in (done.stdout, done.stderr):
        assert not moves(stream)
        assert not forged(stream)
    assert "\\x1b[2A" in done.output


def test_every_report_is_text(reports: dict[str, Report], kind: str) -> None:
    console = printing.console()
    console.file = out = io.StringIO()
    render(reports[kind], console)
    assert not moves(out.getvalue())
    assert not forged(out.getvalue())
    assert len(out.getvalue()) > 50


def test_a_diagnosis_of_a_stranger_is_text() -> None:
    at = Divergence(
        name=BAD, level=BAD, operation=BAD, layer=0, position=1, channel=None, what=BAD,
        comparison=Comparison(BAD, "fails", 1, golden=1.0, engine=2.0),
    )  # fmt: skip
    named = Named(fault=BAD, summary=BAD, level=BAD, at=BAD, distance=0.0, golden=1.0, same=[BAD], next_best=(BAD, 1.0))
    found = Diagnosis(
        verdict="named in part", engine=BAD, model=BAD, model_hash=BAD, tokens=[1], levels=[BAD], first_divergence=at,
        faults=[named], unexplained=[at], ranking=[Ranked(fault=BAD, distance=1.0, explains=False)],
        could_not_see=[BAD], no_place=[BAD],
    )  # fmt: skip
    console = printing.console()
    console.file = out = io.StringIO()
    render_diagnosis(found, console)
    assert not moves(out.getvalue())
    assert not forged(out.getvalue())


def test_a_verdict_says_of_how_much_it_is_one(reports: dict[str, Report]) -> None:
    console = printing.console()
    console.file = out = io.StringIO()
    render(reports["one statistic"], console)
    said = "conforms at 1 level; not assessed: operations, edge_cases, trace, logits, continued, steps, lengths, "
    said += "long_state, vocabulary, pieces, sessions, next_tokens"
    assert f"one statistic {said}." in out.getvalue()
    assert said in to_markdown(reports["one statistic"])
    console.file = out = io.StringIO()
    render(reports["nothing"], console)
    assert "nothing: nothing was checked." in out.getvalue()
