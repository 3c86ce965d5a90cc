"""The tables of docs/skills.md: accuracy by engine and task, and what caches, thresholds and faults cost."""

from typing import Any

from markdown_tables import data, table


def by_task() -> str:
    """Accuracy of both models by task, by the golden model."""
    rows = [row for row in data("skills-engines")["rows"] if row["engine"] == "reference"]
    models = {row["model"]: {} for row in rows}
    for row in rows:
        models[row["model"]][row["task"]] = f"{row['accuracy']:.1%} ({_interval(row)}, {row['of']})"
    tasks = next(iter(models.values()))
    return table(("task", *models), [(task, *(found[task] for found in models.values())) for task in tasks])


def engines() -> str:
    """Accuracy over all tasks, by engine."""
    rows = [row for row in data("skills-engines")["rows"] if row["task"] == "all"]
    head = ("model", "engine", "right", "accuracy", "95 % interval")
    return table(
        head,
        [
            (f"`{r['model']}`", r["engine"], f"{r['right']} of {r['of']}", f"{r['accuracy']:.1%}", _interval(r))
            for r in rows
        ],
    )


def caches() -> str:
    """Accuracy by KV scheme."""
    rows = [
        (f"`{r['scheme']}`", f"{r['bits']:g}", f"{r['right']} of {r['of']}", f"{r['accuracy']:.1%}", _interval(r))
        for r in data("skills-caches")["rows"]
    ]
    return table(("scheme", "bits a value", "right", "accuracy", "95 % interval"), rows)


def thresholds() -> str:
    """Accuracy and passes by way and threshold."""
    rows = [
        (
            f"`{r['way']}`",
            f"{r['threshold']:g}",
            f"{r['passes_per_token']:.2f}",
            f"{r['accuracy']:.1%}",
            _interval(r),
            f"{r['same_in_xla']} of {r['of']}",
        )
        for r in data("skills-thresholds")["rows"]
    ]
    head = ("preset", "threshold", "passes a token", "accuracy", "95 % interval", "alike in the JAX engine")
    return table(head, rows)


def faults() -> str:
    """Every fault by the answers that it loses, most first."""
    first, *rows = data("skills-faults")["rows"]
    rows.sort(key=lambda row: (row["right"], row["fault"]))
    lines = [(f"[`{r['fault']}`](faults/{r['fault']}.md)", r["level"], _lost(first, r)) for r in rows]
    return table(("fault", "first seen at", "answers lost"), lines)


def fault_summary() -> str:
    """How many faults destroy, cost and hide, by area."""
    first, *rows = data("skills-faults")["rows"]
    areas = {row["area"]: [0, 0, 0] for row in rows}
    for row in rows:
        lost = first["right"] - row["right"]
        areas[row["area"]][0 if lost > first["right"] / 2 else 1 if lost > 0 else 2] += 1
    head = ("area", "more than half of the answers lost", "some lost", "none lost")
    return table(head, [(area, *counts) for area, counts in areas.items()])


def _lost(golden: dict[str, Any], row: dict[str, Any]) -> str:
    return f"{golden['right'] - row['right']} of {golden['right']}"


def _interval(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{low:.1%} to {high:.1%}"
