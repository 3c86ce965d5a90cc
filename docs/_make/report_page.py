"""docs/report-schema.md: the parts of a report, read from the structures that the report is made of."""

import re
from typing import Any

from docstrings import inline, joined
from markdown_tables import MADE, table

from tritgold_conformance.results.report import EXIT_CODES, SCHEMA, json_schema

OPENING = f"""\
What `tritgold check --json` prints and `--report FILE.json` writes: one JSON object of the schema `{SCHEMA}`. Every
number in it was measured in that run; what was not measured is null. `tritgold check --schema` prints the same as JSON
Schema, `tritgold report` makes pages, JUnit files and badges of such a file ([reports](reports.md)). What the levels
are: [judging](judging.md)."""


def report_page() -> str:
    """The page."""
    schema = json_schema()
    codes = [(f"`{verdict}`", str(code)) for verdict, code in EXIT_CODES.items()]
    return joined(
        "# The report",
        MADE,
        OPENING,
        table(("verdict", "exit code"), codes),
        *(part(name, defined) for name, defined in schema["$defs"].items()),
    )


def part(name: str, defined: dict[str, Any]) -> str:
    """One structure: what its docstring says, and its fields."""
    required = defined.get("required", [])
    rows = [
        (f"`{field}`", kind(given), "" if field in required else default(given))
        for field, given in defined.get("properties", {}).items()
    ]
    told = [inline(block) for block in re.split(r"\n\s*\n", defined.get("description", "")) if block]
    fields = [table(("field", "type", "if not there"), rows)] if rows else []
    return joined(f"## {name}", *told, *fields).rstrip()


def kind(given: dict[str, Any]) -> str:
    """The type of a value, in words.

    >>> kind({"type": "array", "items": {"type": "integer"}}), kind({"anyOf": [{"type": "number"}, {"type": "null"}]})
    ('array of integer', 'number or null')
    """
    if "$ref" in given:
        name = given["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in given:
        return " or ".join(map(kind, given["anyOf"]))
    if "enum" in given:
        return ", ".join(f"`{value}`" for value in given["enum"])
    if given.get("type") == "array":
        items = given.get("prefixItems") or ([given["items"]] if isinstance(given.get("items"), dict) else [])
        return "array of " + ", ".join(map(kind, items)) if items else "array"
    if given.get("type") == "object" and given.get("additionalProperties"):
        return f"object, each value {kind(given['additionalProperties'])}"
    return str(given.get("type", "anything"))


def default(given: dict[str, Any]) -> str:
    """What a field is that the object does not have."""
    value = given.get("default", "")
    if value is None:
        return "null"
    return f"`{value}`" if value != "" else "empty"
