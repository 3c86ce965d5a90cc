"""docs/judging.md lists what an engine may offer: every method of the Protocol with its arguments, and nothing else."""

import inspect
import re
from pathlib import Path

from tritgold_conformance.contract.clock import RUNS
from tritgold_conformance.contract.engine import JUDGED, Engine
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.http_server import STEPS
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.questions.text_and_bytes import METHODS
from tritgold_conformance.results.levels import LEVELS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "judging.md").read_text(encoding="utf-8")
OFFERED = {name for name, member in vars(Engine).items() if inspect.isfunction(member) and not name.startswith("_")}


def listed(page: str) -> dict[str, list[str]]:
    """Method -> arguments, of the rows of the table of methods."""
    table = page.partition("| method | returns |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", table, re.MULTILINE)
    return {name: [argument for argument in arguments.split(", ") if argument] for name, arguments in rows}


def test_the_page_lists_the_methods_of_the_protocol_with_their_arguments() -> None:
    offered = {name: list(inspect.signature(getattr(Engine, name)).parameters)[1:] for name in OFFERED}
    assert listed(PAGE) == offered
    assert listed(PAGE.replace("| `unpack(format, data, shape)` |", "| `unpack(data)` |")) != offered


def test_everything_that_is_asked_is_in_the_protocol() -> None:
    assert {*METHODS, *JUDGED} <= OFFERED
    asked = {n for n, m in vars(EngineUnderTest).items() if inspect.isfunction(m) and not n.startswith("_")}
    ours = {
        "has",
        "ask",
        "prepare",
        "forget",
        "read",
        "timed_rows",
    }  # of which our own ways in hear, and never a class that is plugged in
    assert asked - ours <= OFFERED


def test_every_level_has_a_row() -> None:
    rows = re.findall(r"^\| (\w+) \|", PAGE.partition("| level |")[2].partition("\n\n")[0], re.MULTILINE)
    assert rows == [*LEVELS]


def test_figures_of_the_page_are_those_of_the_code() -> None:
    assert f"the median of {RUNS} after a warm-up" in PAGE
    assert f"what {STEPS} tokens more take" in PAGE
    protocol = (DOCS / "command-protocol.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"`{name}`" not in protocol] == []
