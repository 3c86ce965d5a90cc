"""The pages of docs/modes and docs/decode-presets: arithmetic modes, and the ways of block diffusion."""

import inspect
import re
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

from docstrings import inline, joined
from markdown_tables import MADE, table

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.decode import diffusion_presets
from tritgold.decode.diffusion_options import Defect, Diffusion, resolve
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.errors import ConfigError
from tritgold.golden import embedded_model
from tritgold.modes import GOLDEN, LLAMA_CPP_Q8_K, ArithmeticMode, comparable

MODES_OPENING = """\
An arithmetic mode names every place where an arithmetic rounds. Two engines that differ only there are both right: they
run in different modes. Traces and reports carry the id, and traces of modes that are not comparable are never compared.
Why the golden one is the same on every machine: [golden arithmetic](../golden-arithmetic.md)."""

PRESETS_OPENING = """\
The ways of block diffusion that engines have, each as options of one decoder, without its engine's defects. How they
go: [decoding](../decoding.md). Token shift, sub-block and the rest: [glossary](../glossary.md)."""

Known = list[tuple[ArithmeticMode, str, str]]  # each mode, the file that defines it, and who computes in it


def modes() -> Known:
    """All of them. Imports JAX, which the mode of the JAX engine stands beside."""
    from tritgold_xla.runtime.flags import MODE

    here = "reference/tritgold/modes.py"
    return [
        (GOLDEN, here, "the golden model; an engine is judged by it unless `--mode` says otherwise"),
        (MODE, "accelerated/tritgold_xla/runtime/flags.py", "the JAX engine, which is judged by `golden`"),
        (LLAMA_CPP_Q8_K, here, "`--engine llama.cpp`, and any engine with `--mode llama-cpp-q8_k`"),
    ]


def mode_pages() -> dict[str, str]:
    """The modes by path in docs."""
    known = modes()
    rows = [(f"[{m.id}]({m.name}.md)", who, others(m, known)) for m, _, who in known]
    head = ("mode", "who computes in it", "comparable with")
    pages = {"modes/README.md": joined("# Arithmetic modes", MADE, MODES_OPENING, table(head, rows))}
    for mode, file, who in known:
        pages[f"modes/{mode.name}.md"] = joined(
            f"# {mode.id}",
            MADE,
            f"[All modes](README.md), the code: [`{Path(file).name}`](../../{file})",
            f"Who computes in it: {who}. Comparable with: {others(mode, known)}.",
            "## Where it rounds",
            "\n".join(f"- {inline(place)}" for place in mode.rounds),
        )
    return pages


def others(mode: ArithmeticMode, known: Known) -> str:
    """Ids of the other modes that it can be compared with."""
    return ", ".join(f"`{m.id}`" for m, _, _ in known if m is not mode and comparable(m.id, mode.id)) or "no other"


def preset_pages() -> dict[str, str]:
    """The ways of block diffusion by path in docs."""
    with embedded_model("kjv-dlm") as path:
        config = open_checkpoint(path).config
    told = described(diffusion_presets, PRESETS)
    rows = [(f"[{name}]({name}.md)", inline(told[name]), f"`{preset(name).attention}`") for name in PRESETS]
    head = ("`--decode`", "what it is", "attention")
    pages = {"decode-presets/README.md": joined("# Decode presets", MADE, PRESETS_OPENING, table(head, rows))}
    before = ""
    for name in PRESETS:
        text = inline(told[name]).replace("the same", f"the same as [{before}]({before}.md)", 1)
        pages[f"decode-presets/{name}.md"] = preset_page(name, text, config)
        before = name if text == inline(told[name]) else before
    return pages


def preset_page(name: str, told: str, config: ModelConfig) -> str:
    """One way."""
    options, names = preset(name), tuple(field.name for field in fields(Diffusion) if field.name != "defects")
    meanings = described(Diffusion, names)
    rows = [(f"`{option}`", f"`{getattr(options, option)}`", inline(meanings[option])) for option in names]
    defects = ", ".join(f"`{defect}`" for defect in Defect if possible(defect, name, config))
    code = "../../reference/tritgold/decode"
    return joined(
        f"# {name}",
        MADE,
        f"[All presets](README.md), [decoding](../decoding.md), the code: "
        f"[`diffusion_presets.py`]({code}/diffusion_presets.py), [`diffusion_options.py`]({code}/diffusion_options.py)",
        f"{told[0].upper()}{told[1:]}.",
        f'To see it: `tritgold run kjv-dlm --decode {name} --prompt "In the beginning"`.',
        "## Options",
        table(("option", "value", "what it is"), rows),
        f"[Defects](../decoding.md#defects) of known engines that it can be given with `--defect`: {defects}.",
    )


def possible(defect: Defect, name: str, config: ModelConfig) -> bool:
    """Whether the options of the preset have a place for the defect."""
    try:
        resolve(preset(name, defects=frozenset({defect})), config)
    except ConfigError:
        return False
    return True


def described(documented: object, names: Collection[str]) -> dict[str, str]:
    """What a docstring says of each name: ``name: text``, ``name  text``, or ``name, name: text`` of several.

    An entry begins a line, and goes on over deeper ones or, where they begin none, over equal ones.
    """
    head = rf"^ *((?:{'|'.join(map(re.escape, names))})\b[a-z_, ]*?)(?:: | {{2,}})"
    parts = re.split(head, (inspect.getdoc(documented) or "").split("\n\n", 1)[1], flags=re.MULTILINE)[1:]
    found = {}
    for heads, text in zip(parts[::2], parts[1::2], strict=True):
        for name in heads.split(", "):
            found[name] = " ".join(text.split("\n\n")[0].split())
    return found
