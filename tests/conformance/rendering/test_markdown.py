"""Markdown: its tables stay tables and its code stays code, whatever an engine says."""

import re

import pytest

from tritgold_conformance.rendering.escaping import fenced, markdown
from tritgold_conformance.rendering.markdown import to_markdown
from tritgold_conformance.results.report import Report


def wrong(page: str) -> list[str]:
    """Outside of code: HTML, links, rows of another width; and a fence that is not closed."""
    found, fence, width = [], "", 0
    for line in page.splitlines():
        if fence or line.startswith("```"):
            marks = line[: len(line) - len(line.lstrip("`"))]
            fence = marks if not fence else "" if line == fence else fence
            continue
        if re.search(r"<[a-zA-Z/!]|(?<!\\)\]\(|://", line):
            found.append(line)
        bars = len(re.findall(r"(?<!\\)\|", line))
        if bars and width and bars != width:
            found.append(f"{bars} bars, not {width}: {line}")
        width = bars
    return found + (["the fence is open"] if fence else [])


@pytest.mark.parametrize("page", ["<b>", "[a](b)", "see http://a", "| a | b |\n| - | - |\n| c |", "```sh\na"])
def test_the_check_of_markdown_can_fail(page: str) -> None:
    assert wrong(page)


def test_every_report_is_markdown(reports: dict[str, Report], kind: str) -> None:
    page = to_markdown(reports[kind])
    assert not wrong(page)
    page.encode("utf-8")


def test_a_failing_engine_has_its_failures_and_commands(reports: dict[str, Report]) -> None:
    page = to_markdown(reports["failing"])
    assert "### Failures: 7" in page
    assert "**operations: ffn\\_act \\(layers 0-1\\)**" in page
    assert "--only layers.0.ffn_act --ids" in page
    assert "| next_tokens | - not assessed |" in page


def test_a_passing_engine_has_its_speed(reports: dict[str, Report]) -> None:
    page = to_markdown(reports["passing"])
    assert "### Tokens a second" in page
    assert "Failures" not in page


def test_a_fence_is_longer_than_any_run_inside() -> None:
    assert fenced("a ```` b").splitlines()[0] == "`````sh"
    assert markdown("a\n| b") == "a \\| b"
