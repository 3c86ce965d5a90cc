"""The pages of docs/kv-schemes and docs/sparsity-rules: what the code says of each, and what was measured."""

import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from docstrings import joined, markdown, prose
from markdown_tables import MADE, data, figure, table

from tritgold.kv_cache.base import KvScheme, Sizes
from tritgold.kv_cache.kv_scheme import SCHEMES
from tritgold.sparsity.base import SparsityRule
from tritgold.sparsity.rules import SPARSITY_RULES

REAL = Sizes(layers=30, kv_heads=5, head_dim=128)  # BitNet b1.58 2B-4T
CONTEXT = 4096
MIB = 1 << 20

SCHEMES_OPENING = f"""\
How a cache keeps keys and values. What that costs, measured: [KV caches](../kv-cache.md). Here bits a value and MiB are
those of BitNet 2B-4T's heads ({REAL.kv_heads} of {REAL.head_dim}, {REAL.layers} layers) at {CONTEXT:,} tokens, scales
included."""

RULES_OPENING = """\
What can be left out of activations or attention. What that costs, measured: [sparsity](../sparsity.md). `--sparsity`
may be repeated: one rule for activations, one for attention."""


def scheme_pages() -> dict[str, str]:
    """The KV-cache schemes by path in docs."""
    rows = []
    for name, kind in SCHEMES.items():
        scheme = kind()
        mib = scheme.cache_bytes(REAL, CONTEXT) / MIB
        rows.append((f"[{name}]({name}.md)", in_short(kind), f"{scheme.bits_per_value(REAL):.4g}", f"{mib:,.4g}"))
    head = ("`--kv-cache`", "what it keeps", "bits a value", "MiB")
    pages = {"kv-schemes/README.md": joined("# KV-cache schemes", MADE, SCHEMES_OPENING, table(head, rows))}
    for name, kind in SCHEMES.items():
        about = "[All schemes](README.md), [KV caches](../kv-cache.md)"
        pages[f"kv-schemes/{name}.md"] = page(kind, name, about, f"--kv-cache {name}", measured_scheme(name))
    return pages


def measured_scheme(name: str) -> str:
    """The rows of docs/data/kv-error.json that are of a scheme: on kjv-ar, and of plain attention over 512 tokens."""
    report = data("kv-error")
    error = {row["scheme"]: row for row in report["attention"] if (row["context"], row["outlier"]) == (512, 1.0)}
    rows = [
        (
            f"`{row['scheme']}`",
            f"{error[row['scheme']]['bits']:.4g}",
            figure(error[row["scheme"]]["relative"]),
            figure(row["divergence"]),
            f"{row['same_token']:.1%}",
        )
        for row in report["model"]
        if row["scheme"].split("-")[0] == name
    ]
    head = ("scheme", "bits a value", "error, 512 tokens", "kjv-ar, nats", "same token")
    return measured(head, rows, "[Error against bits](../kv-cache.md#error-against-bits-a-value) has all of them.")


def rule_pages() -> dict[str, str]:
    """The sparsity rules by path in docs."""
    rows = [(f"[{name}]({name}.md)", in_short(rule)) for name, rule in SPARSITY_RULES.items()]
    head = ("`--sparsity`", "what it does")
    pages = {"sparsity-rules/README.md": joined("# Sparsity rules", MADE, RULES_OPENING, table(head, rows))}
    for name, rule in SPARSITY_RULES.items():
        about = "[All rules](README.md), [sparsity](../sparsity.md)"
        pages[f"sparsity-rules/{name}.md"] = page(rule, name, about, f"--sparsity {name}", measured_rule(name))
    return pages


def measured_rule(name: str) -> str:
    """The rows of docs/data/sparsity-cosine.json that are of a rule, on kjv-ar."""
    rows = [
        (f"`{row['rule']}`", f"{row['sparsity']:.1%}", f"{row['cosine']:.4f}", f"{row['same_token']:.0%}")
        for row in data("sparsity-cosine")["model"]
        if row["rule"].split(":")[0] == name
    ]
    head = ("rule", "kjv-ar: sparsity", "cosine of logits", "same token")
    return measured(head, rows, "[Sparsity](../sparsity.md) has all of them.")


def measured(head: Iterable[str], rows: list[tuple[str, ...]], where: str) -> str:
    """The section, empty where nothing was measured."""
    return joined("## Measured", table(head, rows), where).rstrip() if rows else ""


def page(thing: type[KvScheme] | type[SparsityRule], name: str, about: str, option: str, more: str) -> str:
    """What the code says of a class: itself and those that it comes from, its options, its module."""
    kinds = (KvScheme, SparsityRule)
    own = [base for base in thing.__mro__ if issubclass(base, kinds) and not inspect.isabstract(base)]
    file = f"reference/{thing.__module__.replace('.', '/')}.py"
    said = dict.fromkeys(paragraph for base in own for paragraph in markdown(base))
    after = [paragraph for paragraph in markdown(sys.modules[thing.__module__]) if paragraph not in said]
    options = [(f"`{f.name}`", f"`{getattr(f.default, 'id', f.default)}`", values(str(f.type))) for f in fields(thing)]
    parts = (
        f"# {name}",
        MADE,
        f"{about}, the code: [`{Path(file).name}`](../../{file})",
        *said,
        f'To see it: `tritgold run {option} --prompt "In the beginning"`.',
        joined("## Options", table(("option", "default", "values"), options)).rstrip() if options else "",
        more,
        "## Background",
        *after,
    )
    return joined(*filter(None, parts))


def values(annotation: str) -> str:
    """A type for a reader: its name, or the values there are.

    >>> values("typing.Literal['head', 'token']"), values("<class 'int'>"), values("int | None")
    ('`head` or `token`', 'int', 'int or None')
    """
    if literal := re.findall(r"Literal\[(.*)\]", annotation):
        return " or ".join(f"`{value.strip()}`" for value in literal[0].replace("'", "").split(","))
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", annotation).replace(" | ", " or ")


def in_short(documented: type) -> str:
    """The first sentence of a docstring; of a long one what stands before its first colon."""
    sentence = prose(documented).split(". ")[0].rstrip(".")
    return sentence.split(":")[0] if len(sentence) > 130 else sentence
