"""The tables of docs/skills.md, each with sentences of what is seen in it: all of docs/data/skills-*.json."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from markdown_tables import data, table

TRAINING = Path(__file__).parents[2] / "reference" / "tritgold" / "golden" / "skills-training.json"
FIRST, TWIN = "skills-ar-first", "skills-ar-float"
PARTS = {
    "engines": "models and engines",
    "thresholds": "block diffusion by threshold",
    "presets": "presets",
    "caches": "KV schemes",
    "sparsity": "sparsity rules",
    "policies": "modes and policies",
    "faults": "faults",
}
EFFECTS = ("destroys", "costs", "hides")
PAIRED = ("right", "accuracy", "95 % interval", "lost", "gained")
Row = dict[str, Any]


def rows_of(part: str) -> list[Row]:
    """The rows of a part's report."""
    rows: list[Row] = data(f"skills-{part}")["rows"]
    return rows


def asked() -> str:
    """How many questions each part asked of which model, and in how many rows."""
    lines = []
    for part, title in PARTS.items():
        report = data(f"skills-{part}")
        names = dict.fromkeys(row["model"] for row in report["rows"] if "model" in row) or report["models"]
        models = ", ".join(f"`{name}`" for name in names)
        of = max(row["of"] for row in report["rows"])
        lines.append((title, models, of))
    return table(("part", "model", "questions"), lines)


def by_task() -> str:
    """Accuracy of both models by task, by the golden model."""
    rows = [row for row in rows_of("engines") if row["engine"] == "reference"]
    models: dict[str, dict[str, str]] = {row["model"]: {} for row in rows}
    for row in rows:
        models[row["model"]][row["task"]] = f"{row['accuracy']:.1%} ({_interval(row)}, {row['of']})"
    tasks = next(iter(models.values()))
    return table(("task", *models), [(task, *(found[task] for found in models.values())) for task in tasks])


def twin() -> str:
    """The network with float weights beside the ternary one, after the same steps of the same recipe."""
    runs = json.loads(TRAINING.read_text(encoding="utf-8"))
    (steps, ternary), (also, float32) = (runs[name]["held_out_accuracy"][-1] for name in (FIRST, TWIN))
    assert steps == also
    return (
        f"After the same {steps:,} steps of the same recipe the ternary network (`{FIRST}`) is right in "
        f"{ternary:.1%} of the questions that training asks, up to 64 of each task, and the same network with float32 "
        f"weights and activations (`{TWIN}`) in {float32:.1%}."
    )


def engines() -> str:
    """Accuracy over all tasks, by engine."""
    rows = [row for row in rows_of("engines") if row["task"] == "all"]
    lines = [(f"`{row['model']}`", row["engine"], *_right(row)) for row in rows]
    return table(("model", "engine", *PAIRED[:3]), lines)


def thresholds() -> str:
    """Accuracy and passes by way and threshold."""
    lines = [
        (
            f"`{row['way']}`",
            f"{row['threshold']:g}",
            f"{row['passes_per_token']:.2f}",
            *_right(row),
            f"{row['same_in_xla']} of {row['of']}",
        )
        for row in rows_of("thresholds")
    ]
    return table(("preset", "threshold", "passes a token", *PAIRED[:3], "alike in the JAX engine"), lines)


def presets() -> str:
    """Accuracy and passes by preset."""
    lines: list[tuple[str, ...]] = []
    for row in rows_of("presets"):
        title = row["preset"] if " " in row["preset"] else f"[`{row['preset']}`](decode-presets/{row['preset']}.md)"
        how = (title, row["attention"], "yes" if row["shift"] else "no")
        if "why_not" in row:
            lines.append((*how, "", row["why_not"], *[""] * 4))
        else:
            lines.append((*how, f"{row['passes_per_token']:.2f}", *_paired(row)))
    return table(("preset", "attention", "token shift", "passes a token", *PAIRED), lines)


def caches() -> str:
    """Answers by KV scheme."""
    lines = [(f"`{row['scheme']}`", f"{row['bits']:g}", *_paired(row)) for row in rows_of("caches")]
    return table(("scheme", "bits a value", *PAIRED), lines)


def sparsity() -> str:
    """Answers by sparsity rule."""
    lines = [(f"`{row['rule']}`", f"{row['sparsity']:.1%}", *_paired(row)) for row in rows_of("sparsity")]
    return table(("rule", "zeros", *PAIRED), lines)


def policies() -> str:
    """Answers by arithmetic mode and by precision policy."""
    lines = [(f"`{row['policy']}`", row["kind"], *_paired(row)) for row in rows_of("policies")]
    return table(("mode or policy", "rounds", *PAIRED), lines)


def faults() -> str:
    """Every fault by the answers that it loses, most first."""
    first, *rows = rows_of("faults")
    rows.sort(key=lambda row: (-row["lost"], row["gained"], row["fault"]))
    lines = [
        (
            f"[`{row['fault']}`](faults/{row['fault']}.md)",
            row["level"],
            row["effect"],
            f"{row['lost']} of {first['right']}",
            row["gained"],
        )
        for row in rows
    ]
    return table(("fault", "first seen at", "effect", "lost", "gained"), lines)


def fault_summary() -> str:
    """How many faults destroy, cost and hide, by area."""
    rows = rows_of("faults")[1:]
    areas = list(dict.fromkeys(row["area"] for row in rows))
    counts = [(area, *(_count(rows, effect, area) for effect in EFFECTS)) for area in areas]
    return table(("area", *EFFECTS), [*counts, ("all", *(_count(rows, effect) for effect in EFFECTS))])


def _count(rows: list[Row], effect: str, area: str | None = None) -> int:
    return sum(row["effect"] == effect and area in (None, row["area"]) for row in rows)


def _right(row: Row) -> tuple[str, str, str]:
    return f"{row['right']} of {row['of']}", f"{row['accuracy']:.1%}", _interval(row)


def _paired(row: Row) -> tuple[str, ...]:
    return (*_right(row), str(row["lost"]), str(row["gained"]))


def _interval(row: Row) -> str:
    low, high = row["interval"]
    return f"{low:.1%} to {high:.1%}"


TABLES: dict[str, Callable[[], str]] = {
    "skills-asked": asked,
    "skills-by-task": by_task,
    "skills-twin": twin,
    "skills-engines": engines,
    "skills-thresholds": thresholds,
    "skills-presets": presets,
    "skills-caches": caches,
    "skills-sparsity": sparsity,
    "skills-policies": policies,
    "skills-fault-summary": fault_summary,
    "skills-faults": faults,
}
