"""The badge: green only where every level passed."""

import xml.etree.ElementTree as ET

import msgspec
import pytest

from tritgold_conformance.rendering.badge import BLUE, GREEN, GREY, ORANGE, RED, badge
from tritgold_conformance.results.report import Expected, Report
from tritgold_conformance.results.xfail import with_xfail


def says(report: Report) -> tuple[str, str]:
    root = ET.fromstring(badge(report))
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    rect = root.find("{http://www.w3.org/2000/svg}rect")
    assert rect is not None
    assert texts[0] == "tritgold"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    return texts[1], rect.get("fill") or ""


def entry(pattern: str) -> Expected:
    return Expected(pattern=pattern, reason="", line=1, failing=0, passing=0, not_assessed=0)


def test_what_it_says_of_each(reports: dict[str, Report]) -> None:
    assert says(reports["passing"]) == ("conforms 12/12 levels · golden/1", GREEN)
    assert says(reports["half"]) == ("conforms 3/11 levels · golden/1", BLUE)
    assert says(reports["failing"]) == ("does not conform: 6 of 11 levels fail · golden/1", RED)
    assert says(reports["nothing"]) == ("nothing was checked · golden/1", GREY)


@pytest.mark.parametrize(
    "level", ["operations", "edge_cases", "trace", "logits", "continued", "steps", "lengths", "sessions"]
)
@pytest.mark.parametrize("status", ["not assessed", "failed", "known failures"])
def test_it_is_green_only_where_every_level_passed(reports: dict[str, Report], level: str, status: str) -> None:
    before = reports["passing"]
    levels = {**before.levels, level: msgspec.structs.replace(before.levels[level], status=status)}
    assert says(msgspec.structs.replace(before, levels=levels))[1] != GREEN


def test_text_counts_where_there_are_no_logits(reports: dict[str, Report]) -> None:
    before = reports["nothing"]
    levels = {**before.levels, "next_tokens": msgspec.structs.replace(before.levels["next_tokens"], status="passed")}
    report = msgspec.structs.replace(before, levels=levels, verdict="conforms")
    assert says(report) == ("conforms 1/13 levels · golden/1", BLUE)


def test_known_failures_are_orange_and_strict_stale_entries_red(reports: dict[str, Report]) -> None:
    levels = ("operations", "edge_cases", "trace", "logits", "continued", "steps")
    known = with_xfail(reports["failing"], [entry(level) for level in levels], "xfail.txt")
    assert says(known) == ("known failures in 6 of 11 levels · golden/1", ORANGE)
    stale = with_xfail(reports["passing"], [entry("logits")], "xfail.txt", strict=True)
    assert says(stale) == ("stale xfail entries · golden/1", RED)


def test_a_hostile_name_stays_text(reports: dict[str, Report]) -> None:
    text = badge(reports["hostile"])
    assert "<script" not in text
    ET.fromstring(text)
