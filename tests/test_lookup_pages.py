"""The pages that are looked up are those that the code makes now."""

from dataclasses import replace

import click
import command_page
import decode_pages
import fault_pages
import lookup_pages
import pytest
import report_page
from markdown_tables import FOLDER

from tritgold.decode.diffusion_presets import PRESETS
from tritgold.kv_cache.kv_scheme import SCHEMES
from tritgold.sparsity.rules import SPARSITY_RULES
from tritgold_conformance.cli import COMMANDS, main
from tritgold_conformance.faults import FAULTS, fault
from tritgold_conformance.results.report import json_schema


def test_pages_are_what_the_code_says_now() -> None:
    made = lookup_pages.pages()
    alone = {"architectures.md", "commands.md", "report-schema.md", "scoreboard-cells.md"}
    assert lookup_pages.there() == made.keys() - alone, "run make lookup"
    stale = [name for name, text in made.items() if (FOLDER / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run make lookup"


def test_there_is_a_page_for_everything_that_has_a_name() -> None:
    there = lookup_pages.there()
    for folder, names in (
        ("faults", FAULTS),
        ("decode-presets", PRESETS),
        ("kv-schemes", SCHEMES),
        ("sparsity-rules", SPARSITY_RULES),
        ("modes", [mode.name for mode, _, _ in decode_pages.modes()]),
    ):
        found = {page for page in there if page.startswith(f"{folder}/")}
        assert found == {f"{folder}/{name}.md" for name in [*names, "README"]}


def test_every_area_level_and_model_has_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault_pages.undescribed() == set()
    monkeypatch.delitem(fault_pages.LEVELS, "steps")
    assert fault_pages.undescribed() == {"steps"}


def test_a_page_of_a_fault_has_all_that_the_fault_says() -> None:
    shown = fault("silu")
    page = fault_pages.page(shown)
    assert shown.summary in page
    assert shown.looks_like in page
    assert all(report in page for report in shown.seen_in)
    assert '@known_fault(OPERATIONS, gate(unless="silu"))\ndef silu(g: np.ndarray)' in page
    assert "fluent and wrong" not in page.partition("```python")[2], "the docstring is the page already"
    assert "five times the perplexity" in page  # of the test of the reported case


def test_what_changes_in_a_fault_changes_its_page() -> None:
    changed = replace(fault("silu"), looks_like="a | b", seen_in=(), invisible_on=("prefill",))
    page = fault_pages.page(changed)
    assert r"| what it looks like | a \| b |" in page
    assert "| seen in | no public report known |" in page
    assert "| invisible on | one prefill from position 0; only pieces and steps show it |" in page


def test_the_code_of_every_fault_is_found() -> None:
    for known in FAULTS.values():
        code = fault_pages.code_of(known)
        assert f"def {known.name.replace('-', '_')}(" in code
        assert code.count("@known_fault(") == 1, "its own decorator, and no other fault"


def test_the_code_of_a_fault_has_the_functions_that_it_names_and_its_page_the_notes() -> None:
    code = fault_pages.code_of(fault("no-commit"))
    assert code.startswith("def diffuses(defect: Defect)")
    assert code.endswith("def no_commit() -> None: ..."), "a function that is its docstring alone"
    assert "the norm remembers" in fault_pages.page(fault("residual-after-the-norm"))


def test_every_command_and_option_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = command_page.command_page()
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert f"## tritgold {name}\n" in page
        for option in command.params:
            assert all(f"`{word}" in page or f", {word}" in page for word in option.opts if word.startswith("--"))
    monkeypatch.setattr(main.commands["env"], "help", "Another text.")
    assert command_page.command_page() != page


def test_every_part_of_the_report_is_on_the_page() -> None:
    page = report_page.report_page()
    for name, part in json_schema()["$defs"].items():
        told = page.split(f"## {name}\n")[1].split("\n## ")[0]
        assert all(f"| `{field}` |" in told for field in part.get("properties", {})), name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"$ref": "#/$defs/Level"}, "[Level](#level)"),
        ({"enum": [1, "a"]}, "`1`, `a`"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "number or null"),
        ({"type": "array", "items": {"type": "integer"}}, "array of integer"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "object, each value string"),
        ({}, "anything"),
    ],
)
def test_types_in_words(given: dict[str, object], expected: str) -> None:
    assert report_page.kind(given) == expected


def test_what_a_docstring_says_of_several_names_goes_to_each() -> None:
    class Documented:
        """Head.

        first, second: both
            of them.
        third: one.

        And more.
        """

    found = decode_pages.described(Documented, ("first", "second", "third"))
    assert found == {"first": "both of them.", "second": "both of them.", "third": "one."}
