"""JUnit XML by what Jenkins, GitLab and pytest's own readers expect of it."""

import xml.etree.ElementTree as ET

import pytest

from tritgold_conformance.rendering.junit import junit
from tritgold_conformance.results.cases import cases
from tritgold_conformance.results.report import Expected, Report
from tritgold_conformance.results.xfail import with_xfail

# Attributes that pytest writes and Jenkins' schema knows; (required, allowed).
ATTRIBUTES = {
    "testsuites": ({"name"}, {"tests", "failures", "errors", "skipped", "time"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped"},
        {"time", "timestamp", "hostname", "id", "package"},
    ),
    "properties": (set(), set()),
    "property": ({"name", "value"}, set()),
    "testcase": ({"classname", "name"}, {"time", "file", "line"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, {"type"}),
}
PARENTS = {
    "testsuite": "testsuites", "properties": "testsuite", "property": "properties", "testcase": "testsuite",
    "failure": "testcase", "error": "testcase", "skipped": "testcase",
}  # fmt: skip


def wrong(text: str) -> list[str]:
    root = ET.fromstring(text)
    found = [] if root.tag == "testsuites" else [f"root {root.tag}"]
    for parent in root.iter():
        if parent.tag not in ATTRIBUTES:
            found.append(f"element {parent.tag}")
            continue
        required, allowed = ATTRIBUTES[parent.tag]
        found += [f"{parent.tag} lacks {a}" for a in required - set(parent.keys())]
        found += [f"{parent.tag} has {a}" for a in set(parent.keys()) - required - allowed]
        found += [f"{child.tag} in {parent.tag}" for child in parent if PARENTS.get(child.tag) != parent.tag]
    for suite in root.iter("testsuite"):
        counts = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
        found += [f"count of {tag}" for a, tag in counts.items() if suite.get(a) != str(len(list(suite.iter(tag))))]
        names = [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")]
        found += ["a case twice"] if len(set(names)) < len(names) else []
    return found


@pytest.mark.parametrize(
    "text",
    [
        "<testsuite/>",
        '<testsuites name="a"><case/></testsuites>',
        '<testsuites name="a"><testsuite name="b" tests="2" failures="0" errors="0" skipped="0"/></testsuites>',
        '<testsuites name="a" colour="b"/>',
    ],
)
def test_the_check_of_junit_can_fail(text: str) -> None:
    assert wrong(text)


def test_every_report_is_junit(reports: dict[str, Report], kind: str) -> None:
    text = junit(reports[kind])
    assert not wrong(text)
    assert not wrong(text.encode("utf-8").decode("utf-8"))
    assert len(list(ET.fromstring(text).iter("testcase"))) == len(cases(reports[kind])) + 1


def counts(report: Report) -> tuple[int, int, int]:
    root = ET.fromstring(junit(report))
    return tuple(int(root.get(name, "")) for name in ("failures", "errors", "skipped"))  # type: ignore[return-value]


def test_a_passing_engine_skips_what_it_does_not_offer_alone(reports: dict[str, Report]) -> None:
    assert counts(reports["passing"]) == (0, 0, 10)


def test_each_failure_ends_with_its_command(reports: dict[str, Report]) -> None:
    report = reports["failing"]
    failures = list(ET.fromstring(junit(report)).iter("failure"))
    assert len(failures) == 2 + 1 + 1 + 3, "operations, edge cases, trace, logits three ways"
    for failure in failures:
        assert failure.text is not None
        assert failure.text.splitlines()[-1].startswith("tritgold check --engine 'my_module:My Engine' --model seeded")
    assert "--only layers.1.ffn_act --ids" in (failures[1].text or "")


def test_what_is_not_assessed_is_skipped_and_nothing_at_all_is_an_error(reports: dict[str, Report]) -> None:
    assert counts(reports["half"]) == (0, 0, 19)
    assert counts(reports["nothing"]) == (0, 1, 22)


def test_known_failures_are_skipped_with_their_reason_and_stale_entries_by_strictness(
    reports: dict[str, Report],
) -> None:
    def entry(pattern: str, line: int, reason: str = "") -> Expected:
        return Expected(pattern=pattern, reason=reason, line=line, failing=0, passing=0, not_assessed=0)

    entries = [entry("operations:layers.*.ffn_act", 1, "issue 7"), entry("operations:layers.0.q.out", 2)]
    before = counts(reports["failing"])
    lenient = with_xfail(reports["failing"], entries, "xfail.txt")
    assert counts(lenient) == (before[0] - 2, 0, before[2] + 2 + 1)
    assert "known to fail (issue 7)" in junit(lenient)
    assert counts(with_xfail(reports["failing"], entries, "xfail.txt", strict=True)) == (
        before[0] - 1,
        0,
        before[2] + 2,
    )


def test_versions_are_properties(reports: dict[str, Report]) -> None:
    suite = next(ET.fromstring(junit(reports["passing"])).iter("testsuite"))
    found = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert found["engine"] == "reference"
    assert found["mode"] == "golden/1"
    assert "reference.numpy" in found
