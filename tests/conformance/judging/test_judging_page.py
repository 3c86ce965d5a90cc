"""docs/judging.md lists what an engine may offer: every method of the Protocol with its arguments, and nothing else."""

import inspect
import re
from pathlib import Path

from tritgold.formats.hf_config import read_hf_config
from tritgold.golden import trained_model
from tritgold_conformance.contract.clock import RUNS
from tritgold_conformance.contract.engine import JUDGED, Engine
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.http_server import STEPS
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.golden.run import judging_tokens
from tritgold_conformance.questions.ladder import DEPTHS, EDGES, ladder_of
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


def test_the_table_of_coverage_is_what_the_ladder_asks() -> None:
    """Of kjv-ar: a column for each depth."""
    config = read_hf_config(trained_model("kjv-ar") / "config.json").model
    ladders = [ladder_of(config, judging_tokens(40, config.vocab, 1), depth, 1) for depth in DEPTHS]
    table = PAGE.partition("| | `--quick` |")[2].partition("\n\n")[0]
    rows = {
        row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in table.splitlines()[2:]
    }
    longest = next(cells for name, cells in rows.items() if "its length on kjv-ar" in name)
    for column, found in enumerate(ladders):
        assert found is not None
        assert longest[column].split()[0] == f"{len(found.texts[1]):,}"
        read = {token for text in found.texts for token in text}
        stepped = {token for rung in found.rungs for token in rung.session.stepped} | set(found.texts[0])
        counts = ["all" if len(ids) == config.vocab else f"{len(ids):,}" for ids in (read, stepped)]
        assert rows["ids read, of 2,048; of them in single steps"][column] == "; ".join(counts)
        alone = {len(rung.session.tokens) for rung in found.rungs if rung.session.calls == ("prefill",)}
        edges = {edge + by for edge in EDGES for by in (-1, 0, 1) if edge < len(found.texts[1])}
        assert {*range(1, 34), *edges, len(found.texts[1])} <= alone
        assert {rung.session.calls for rung in found.rungs} >= {("step",) * len(found.texts[1])}
        short = sum("short prompt" in rung.session.id for rung in found.rungs)
        assert rows["prompts of five tokens, 20 texts, read in one process"][column] == str(short)


def test_figures_of_the_page_are_those_of_the_code() -> None:
    assert f"the median of {RUNS} after a warm-up" in PAGE
    assert f"what {STEPS} tokens more take" in PAGE
    protocol = (DOCS / "command-protocol.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"`{name}`" not in protocol] == []
