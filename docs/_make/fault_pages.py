"""The pages of docs/faults: one a fault of the library, and the index of all of them by area."""

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import get_args

from docstrings import inline, joined
from markdown_tables import FOLDER, MADE, table

from tritgold_conformance.faults import FAULTS, rules
from tritgold_conformance.faults.fault import AREAS, INVISIBLE, Fault, Level
from tritgold_conformance.faults.witnesses import MODELS as WITNESSES

CASES = FOLDER.parent / "tests" / "conformance" / "judging" / "test_bug_cases.py"

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
    "architecture": "Parts that some architectures have: biases, norms of heads, windows, scalings of RoPE, factors.",
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
    "odd": "a seeded model whose sizes are not whole blocks",
    "deep": "a seeded model of 12 layers",
    "diffusing": "a seeded block-diffusion model",
    "llama": "a seeded model with SiLU, no sub-norms and dividing scales",
    "untied": "a seeded model with a head of its own",
    "float-scales": "a seeded model whose scales need 24 bits",
    "qwen": "a seeded model with biases of q, k and v, yarn and windows",
    "gemma": "a seeded model with norms of heads and before the residuals, windows and two thetas",
    "granite": "a seeded model with constant factors and the RoPE of Llama 3",
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
    file = Path(inspect.getfile(fault.function)).name
    w = fault.shown_by
    folder = f"../../conformance/{rules.__name__.replace('.', '/')}"
    notes = inspect.cleandoc(fault.function.__doc__ or "").split("\n\n")[2:]
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
        f"[All faults](README.md), [{fault.area}](README.md#{fault.area}), the code: [`{file}`]({folder}/{file}), "
        f"made with [`mutate.py`]({folder.removesuffix('/rules')}/mutate.py)",
        inline(fault.summary),
        *(cell(note) for note in notes),
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


def code_of(fault: Fault) -> str:
    """The fault as its module writes it, without its docstring, after the functions that it names."""
    text, tree = parsed(inspect.getfile(fault.function))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    own = functions[fault.function.__name__]
    wanted = {node.id for node in ast.walk(own) if isinstance(node, ast.Name)} - {own.name}
    lines = text.splitlines()
    head = lines[own.decorator_list[0].lineno - 1 : own.body[0].lineno - 1]
    body = "\n".join(lines[own.body[0].end_lineno : own.end_lineno]).lstrip("\n")
    if not body:  # as ruff formats it, in pages too
        *head, signature = head
        body = f"{signature} ..."
    helpers = [lines[node.lineno - 1 : node.end_lineno] for name, node in functions.items() if name in wanted]
    return "\n\n\n".join("\n".join(part) for part in [*helpers, [*head, body]])


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
