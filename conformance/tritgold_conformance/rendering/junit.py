"""JUnit XML, as Jenkins, GitLab and GitHub's actions read it: a suite for each level, a case for each output.

Cases that were not assessed and known failures are skipped, with the reason. If nothing was checked, or without a
verdict, there is an error, because a run with only skipped cases looks like a pass. There are no times by case.
"""

import xml.etree.ElementTree as ET

from tritgold_conformance.rendering.escaping import clean, command_text, name
from tritgold_conformance.rendering.wording import IN_PROCESS, details
from tritgold_conformance.results.cases import Case, cases, command
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.report import Report

ROOT = "tritgold"


def junit(report: Report) -> str:
    """The document, with an XML declaration for UTF-8."""
    root = ET.Element("testsuites", name=f"{ROOT} {name(report.engine.name)}")
    judged = cases(report)
    for level in report.levels:
        suite = _suite(root, level, report)
        for case in (case for case in judged if case.level == level):
            _case(suite, case, report)
    _whole(_suite(root, "judgement", report), report)
    for element in [*root, root]:
        for counted in ("failure", "error", "skipped"):
            found = len(element.findall(f".//{counted}"))
            element.set({"failure": "failures", "error": "errors"}.get(counted, counted), str(found))
        element.set("tests", str(len(element.findall(".//testcase"))))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, level: str, report: Report) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=f"{ROOT}.{level}")
    properties = ET.SubElement(suite, "properties")
    said = {
        "engine": report.engine.name,
        **{f"engine.{key}": version for key, version in report.engine.versions.items()},
        **{f"reference.{key}": version for key, version in report.reference.versions.items()},
        "mode": report.mode,
        "model": report.model,
        "model_hash": report.model_hash,
        "tokens": len(report.tokens),
        "verdict": report.verdict,
        **({} if report.coverage is None else {"coverage": coverage_line(report.coverage)}),
        **({"matches": report.matches} if report.matches else {}),
        **({"process": IN_PROCESS} if report.in_process else {}),
    }
    for key, value in said.items():
        ET.SubElement(
            properties, "property", name=name(key), value=clean(str(value)) if key == "coverage" else name(value)
        )
    return suite


def _case(suite: ET.Element, case: Case, report: Report) -> None:
    shown = name(case.name) if case.name else case.level
    element = ET.SubElement(suite, "testcase", classname=f"{ROOT}.{case.level}", name=shown)
    if case.status == "not assessed":
        ET.SubElement(element, "skipped", type="not assessed", message=f"not assessed: {clean(case.message)}")
    elif case.status == "known failures":
        why = f" ({clean(case.reason)})" if case.reason else ""
        ET.SubElement(element, "skipped", type="xfail", message=f"known to fail{why}: {clean(case.message)}")
    elif case.status == "failed":
        failure = ET.SubElement(element, "failure", type="does not conform", message=clean(case.message))
        failure.text = "\n".join([*details(case), command_text(command(report, case))])


def _whole(suite: ET.Element, report: Report) -> None:
    """Cases for the whole judgement: that something was checked, and that no entry of the xfail file is stale."""
    element = ET.SubElement(suite, "testcase", classname=f"{ROOT}.judgement", name="something was checked")
    if report.verdict == "nothing was checked":
        ET.SubElement(element, "error", type="nothing was checked", message="no level of this engine was assessed")
    if report.problem is not None:
        said = f"could not be judged: {report.problem.message}"
        error = ET.SubElement(element, "error", type=name(report.problem.kind), message=clean(said))
        error.text = "\n".join([clean(report.problem.message), command_text(report.repeat)])
    for entry in report.xfail.entries if report.xfail is not None else []:
        shown = f"xfail line {entry.line}: {name(entry.pattern)}"
        element = ET.SubElement(suite, "testcase", classname=f"{ROOT}.xfail", name=shown)
        if entry.stale:
            strict = report.xfail is not None and report.xfail.strict
            kind = "failure" if strict else "skipped"
            ET.SubElement(element, kind, type="stale", message=f"stale: it {entry.state}; remove it from the file")
