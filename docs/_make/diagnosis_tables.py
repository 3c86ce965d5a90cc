"""The tables of diagnosis.md, from docs/data/diagnosis-MODEL.json and right-engines.json."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from markdown_tables import data, table

# Model -> what it is.
MODELS = {
    "kjv-ar": "trained, 6 layers",
    "kjv-dlm": "trained, 6 layers, block diffusion",
    "seeded": "random, 2 layers, sub-norms, tied head",
    "llama": "random, 2 layers, SiLU, no sub-norms, scales divide",
    "untied": "random, 3 layers, 8 query heads for 2 key heads, a head of its own",
}
# Models with the parts of further architectures, and their faults alone.
PARTS = {
    "qwen": "biases of q, k and v, yarn, windows",
    "gemma": "norms of heads and before the residuals, windows, two thetas, a scaled embedding",
    "granite": "constant factors, the RoPE of Llama 3",
}
LEVELS = {"operations": "operations", "trace": "traces", "statistics": "statistics alone", "logits": "logits alone"}


def by_model() -> str:
    """Faults that were named of those that the level shows, and pairs of which both were."""
    reports = {name: data(f"diagnosis-{name}") for name in MODELS}
    rows = [
        (f"`{name}`", kind, *(_named([reports[name]["summary"][level]]) for level in LEVELS), _both([reports[name]]))
        for name, kind in MODELS.items()
    ]
    every = list(reports.values())
    total = ("all", "", *(_named([r["summary"][level] for r in every]) for level in LEVELS), _both(every))
    return table(("model", "", *LEVELS.values(), "pairs, traces"), [*rows, total])


def parts() -> str:
    """The faults of the area ``architecture`` on models that have the parts, and what was missed from logits."""
    rows = []
    for name, kind in PARTS.items():
        found = data(f"diagnosis-{name}")["summary"]
        missed = ", ".join(f"[{fault}](faults/{fault}.md)" for fault in found["logits"]["missed"])
        rows.append((f"`{name}`", kind, *(_named([found[level]]) for level in LEVELS), missed))
    return table(("model", "its parts", *LEVELS.values(), "missed from logits"), rows)


def placed() -> str:
    """Faults at one place: named with it, and named at all; what servers show, and text alone."""
    found = data("diagnosis-places-seeded")["summary"]
    rows: list[tuple[str, str, str]] = []
    for level, said in LEVELS.items():
        of = found[level]
        named = f"{of['fault_right']} of {of['visible']}, {of['fault_right'] / of['visible']:.1%}"
        rows.append((f"a fault at a place, from {said}", _named([of]), named))
    summaries = {name: data(f"diagnosis-places-{name}")["summary"] for name in ("seeded", "kjv-ar")}
    rows += [
        (f"20 log-probabilities of a server, `{name}`", "", _named([of["http"]])) for name, of in summaries.items()
    ]
    for name, of in summaries.items():
        text = of["text"]
        part = f"{text['found']} of {text['engines']}, {text['found'] / text['engines']:.1%}: that something is wrong"
        rows.append((f"tokens alone, 16 of them, `{name}`", "", part))
    return table(("seen from", "named, with its place", "the fault named"), rows)


def judged_right() -> str:
    """Right engines by the judge: runs by policy, accused, and the upper bound of the rate."""
    found = data("right-runs")
    policies = [(name, f"{count:,}") for name, count in found["by_policy"].items()]
    bound = "" if found["at_most"] is None else f": with 95 % confidence at most {found['at_most']:.3%} are"
    last = f"**{found['runs']:,}**, of which {found['accused']:,} were accused{bound}"
    return table(("policy", "runs"), [*policies, ("**all**", last)])


def adversary() -> str:
    """Engines written against the judge, by group and kind: how many got the verdict that they should."""
    found = data("adversary")
    kinds: dict[tuple[str, str], Counter[str]] = {}
    for group, kind, verdict, count in found["counts"]:
        kinds.setdefault((group, kind), Counter())[verdict] += count
    rows = [
        (f"{group}: {kind.replace('_', ' ')}", of.total(), of["passes" if group == "right" else "caught"], of["unseen"])
        for (group, kind), of in kinds.items()
    ]
    total = ("**all**", *(f"**{sum(row[at] for row in rows)}**" for at in (1, 2, 3)))
    return table(("engines", "judged", "right verdict", "no input shows it"), [*rows, total])


def unseen() -> str:
    """What no input shows, and why."""
    rows = [(u["what"], u["why"]) for u in data("adversary")["unseen"] if u["verdict"] == "unseen"]
    return table(("passes", "why"), rows)


def noise() -> str:
    """Right engines by kind, and how many were told of anything."""
    runs: Counter[str] = Counter()
    accused: Counter[str] = Counter()
    for name in MODELS:
        report = data(f"diagnosis-{name}")
        runs.update(report["noise_runs"])
        accused.update(row["kind"] for row in report["accused"])
    for row in data("right-engines")["rows"]:
        kind = f"{row['engine']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}, live"
        runs[kind] += 1
        accused[kind] += bool(row["accused"])
    rows = [(kind, f"{runs[kind]:,}", accused[kind]) for kind in runs]
    return table(("a right engine with", "runs", "accused"), [*rows, ("all", f"{runs.total():,}", accused.total())])


def _named(summaries: Iterable[dict[str, Any]]) -> str:
    parts = list(summaries)
    right, visible = sum(s["right"] for s in parts), sum(s["visible"] for s in parts)
    return f"{right} of {visible}, {right / visible:.1%}"


def _both(reports: list[dict[str, Any]]) -> str:
    pairs = [row for report in reports for row in report["paired"] if row["level"] == "trace"]
    both = sum(row["both"] for row in pairs)
    return f"{both} of {len(pairs)}, {both / len(pairs):.0%}" if pairs else ""
