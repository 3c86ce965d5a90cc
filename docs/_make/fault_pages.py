"""The pages of docs/faults: one a fault of the library, and the index of all of them by area."""

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_args

from docstrings import inline, joined
from markdown_tables import FOLDER, MADE, table

from tritgold_conformance.faults import FAULTS, packing
from tritgold_conformance.faults.fault import AREAS, INVISIBLE, Fault, Level
from tritgold_conformance.faults.witnesses import MODELS as WITNESSES

CASES = FOLDER.parent / "tests" / "conformance" / "judging" / "test_bug_cases.py"
PACKAGE = packing.__name__.rpartition(".")[0]
CHANGE = [field.name for field in fields(Fault)].index("change")

ABOUT = {
    "packing": "Bytes are read in another layout, or codes stand for other trits.",
    "scale": "Trits are right, and what multiplies them is not.",
    "activation": "The int8 codes of activations, and their scale.",
    "accumulator": "Integer sums that overflow, stop early or lose their tail.",
    "graph": "Activation function, norms, residuals, head, the order of layers.",
    "attention": "RoPE, mask, softmax, heads.",
    "kv-cache": "Keys and values of earlier passes: another slot, another scale, another layer.",
    "decode": "From logits to tokens: block diffusion, a batch server's loop, sampling, where a text ends.",
    "tokenizer": "From text to ids and back.",
}
LEVELS = {
    "files": "packed bytes, given to `unpack()`",
    "operations": "one operation at a time, on golden inputs",
    "vectors": "layer 0 on telling inputs",
    "trace": "the engine's own activations",
    "statistics": "mean and rms of the engine's own activations",
    "logits": "the logits of one prefill",
    "continued": "the logits of a prompt in pieces, then steps",
    "steps": "the logits token by token",
    "generated": "generated tokens",
    "text": "text to ids, and ids to text",
}
MODELS = {
    "kjv-ar": "the embedded model [kjv-ar](../golden-models.md)",
    "kjv-dlm": "the embedded block-diffusion model [kjv-dlm](../golden-models.md)",
    "seeded": "a small model written from a seed",
    "odd": "a seeded model whose sizes are no whole blocks",
    "deep": "a seeded model of 12 layers",
    "diffusing": "a seeded block-diffusion model",
    "llama": "a seeded model with SiLU, no sub-norms and dividing scales",
    "untied": "a seeded model with a head of its own",
    "float-scales": "a seeded model whose scales need 24 bits",
}

OPENING = """\
What engines of ternary models have done wrong, each as a small change of the golden model: {count} of them. An engine
that has one can be told which it is (`tritgold diagnose --engine my_module:MyEngine`), because the golden model with
that fault says what the engine says. `tritgold faults show NAME` prints what a page here says.

How a fault is named, and how often rightly: [diagnosis](../diagnosis.md). How to add one:
[conformance](../../conformance/README.md). Words: [glossary](../glossary.md)."""

LEGEND = """\
*Seen in* names public reports as repository and number. Each fault has a *witness*, an input in the tests that shows
it, and says on which inputs it provably changes nothing."""


def fault_pages() -> dict[str, str]:
    """Every page by its path in docs."""
    return {"faults/README.md": index(), **{f"faults/{fault.name}.md": page(fault) for fault in FAULTS.values()}}


def index() -> str:
    """All faults by area."""
    parts = []
    for area in AREAS:
        rows = [
            (f"[{f.name}]({f.name}.md)", cell(f.summary), cell(f.looks_like), ", ".join(f.seen_in))
            for f in FAULTS.values()
            if f.area == area
        ]
        parts += [f"## {area}", ABOUT[area], table(("fault", "what is wrong", "what it looks like", "seen in"), rows)]
    return joined("# Faults", MADE, OPENING.format(count=len(FAULTS)), LEGEND, *parts)


def page(fault: Fault) -> str:
    """What the code says of one fault."""
    module = module_of(fault)
    file = Path(inspect.getfile(module)).name
    w = fault.shown_by
    link = f"../../conformance/{PACKAGE.replace('.', '/')}/{file}"
    rows = [
        ("what it looks like", cell(fault.looks_like)),
        ("seen in", ", ".join(fault.seen_in) or "no public report known"),
        ("shown by", f"{LEVELS[w.level]} ([level](../judging.md) `{w.level}`)"),
        *on(fault),
        ("invisible on", "; ".join(cell(INVISIBLE[key]) for key in fault.invisible_on) or "nothing that is known"),
    ]
    return joined(
        f"# {fault.name}",
        MADE,
        f"[All faults](README.md), [{fault.area}](README.md#{fault.area}), the code: [`{file}`]({link})",
        inline(fault.summary),
        table(("", "in short"), rows),
        *cases_of(fault.name),
        "## As a change of the golden model",
        f"<!-- not run: a part of {file}, which has its imports -->\n```python\n{code_of(fault)}\n```",
    )


def on(fault: Fault) -> list[tuple[str, str]]:
    """The row of the witness's model, where the level has one, and of its tokens where they count."""
    w = fault.shown_by
    if w.level in ("files", "text"):
        return []
    return [("on", MODELS[w.model] + ("" if w.level == "generated" else f", {w.tokens} tokens"))]


def cell(text: str) -> str:
    """A sentence inside a table."""
    return inline(text).replace("\n", " ")


def module_of(fault: Fault) -> ModuleType:
    """The module that has the fault."""
    name = fault.area.replace("-", "_")
    module = sys.modules[f"{PACKAGE}.{name}"]
    if fault not in module.FAULTS:
        raise LookupError(f"{fault.name} is of the area {fault.area}, and not in {module.__name__}")
    return module


def code_of(fault: Fault) -> str:
    """The change of the golden model as its module writes it, behind the functions that it names.

    In a fault that a loop makes, the parts in braces are the loop's.
    """
    text, tree = parsed(inspect.getfile(module_of(fault)))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args and named(n.args[0], fault.name)]
    if len(calls) != 1:
        raise LookupError(f"{fault.name} is written {len(calls)} times in {module_of(fault).__name__}")
    change = calls[0].args[CHANGE]
    wanted = {n.id for n in ast.walk(change) if isinstance(n, ast.Name)}
    helpers = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    return "\n\n\n".join([*(source(text, h) for h in helpers), f"change = {source(text, change)}"])


def named(node: ast.expr, name: str) -> bool:
    """Whether an expression is the name, or an f-string that can be."""
    if isinstance(node, ast.JoinedStr):
        parts = (re.escape(str(p.value)) if isinstance(p, ast.Constant) else "[a-z0-9]+" for p in node.values)
        return re.fullmatch("".join(parts), name) is not None
    return isinstance(node, ast.Constant) and node.value == name


def source(text: str, node: ast.stmt | ast.expr) -> str:
    """The lines of a node, as far to the left as they go."""
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    first = lines[0].encode()[node.col_offset :].decode()
    last = len(lines) - 1
    if last == 0:
        return first.encode()[: (node.end_col_offset or 0) - node.col_offset].decode()
    lines[last] = lines[last].encode()[: node.end_col_offset].decode()
    if not node.col_offset:
        return "\n".join(lines)
    return "\n".join([first, *textwrap.dedent("\n".join(lines[1:])).splitlines()])


def cases_of(name: str) -> list[str]:
    """The tests of reported cases in which the fault is named: what was reported, and that the suite says so."""
    found = [
        f"- {said}" + (f": {told}" if told else "") for said, told, code in reported_cases() if f'"{name}"' in code
    ]
    if not found:
        return []
    lead = (
        "Tests of reported bugs that name it ([test_bug_cases.py](../../tests/conformance/judging/test_bug_cases.py)):"
    )
    return ["## Cases", lead, "\n".join(found)]


@cache
def reported_cases() -> list[tuple[str, str, str]]:
    """Of each test of reported cases: its name in words, its docstring, its code."""
    text, tree = parsed(str(CASES))
    lines = text.splitlines()
    return [
        (
            test.name.removeprefix("test_").replace("_", " "),
            inline(" ".join((ast.get_docstring(test) or "").split())),
            "\n".join(lines[min(n.lineno for n in (test, *test.decorator_list)) - 1 : test.end_lineno]),
        )
        for test in tree.body
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
    ]


@cache
def parsed(file: str) -> tuple[str, ast.Module]:
    """A file and its syntax tree."""
    text = Path(file).read_text(encoding="utf-8")
    return text, ast.parse(text)


def undescribed() -> set[str]:
    """Areas, levels and models of the library that this file has no words for."""
    return (set(AREAS) - ABOUT.keys()) | (set(get_args(Level)) - LEVELS.keys()) | (WITNESSES.keys() - MODELS.keys())
