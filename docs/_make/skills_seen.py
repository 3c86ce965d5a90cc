"""What is seen in the tables of docs/skills.md, in sentences made from the same data, so that they stay true."""

from collections.abc import Callable, Sequence

from skills_tables import EFFECTS, Row, rows_of

SHOWN = 4  # names in one sentence


def models() -> str:
    """Each model over all tasks, and the tasks in which it is least right."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows_of("engines")):
        rows = [row for row in rows_of("engines") if row["model"] == model and row["engine"] == "reference"]
        *tasks, total = rows
        weak = sorted((row for row in tasks if row["right"] < row["of"]), key=lambda row: row["accuracy"])
        least = ", ".join(f"{row['task']} ({row['accuracy']:.0%})" for row in weak[:SHOWN])
        found.append(f"`{model}` is right in {total['accuracy']:.0%}" + (f", least in {least}." if least else "."))
    return " ".join(found)


def engines() -> str:
    """Whether engines differ in skills-ar."""
    rows = [row for row in rows_of("engines") if row["task"] == "all" and row["model"] == "skills-ar"]
    names = _listed([row["engine"] for row in rows])
    if len({row["right"] for row in rows}) == 1:
        return f"With `skills-ar`, {names} are right equally often."
    counts = _listed([f"{row['engine']} in {row['right']}" for row in rows])
    return f"With `skills-ar`, engines differ: of {rows[0]['of']} answers, {counts} are right."


def thresholds() -> str:
    """Both ends of each way."""
    rows = rows_of("thresholds")
    found = []
    for way in dict.fromkeys(row["way"] for row in rows):
        ends = sorted((row for row in rows if row["way"] == way), key=lambda row: row["threshold"])
        low, high = ends[0], ends[-1]
        found.append(
            f"`{way}`: {low['passes_per_token']:.2f} passes a token and {low['accuracy']:.0%} right at "
            f"threshold {low['threshold']:g}, {high['passes_per_token']:.2f} and {high['accuracy']:.0%} at "
            f"{high['threshold']:g}."
        )
    return " ".join(found)


def presets() -> str:
    """The fewest passes, and the fewest lost answers."""
    first, *rest = rows_of("presets")
    rows = [row for row in rest if "why_not" not in row]
    fewest = min(rows, key=lambda row: row["passes_per_token"])
    least = min(row["lost"] - row["gained"] for row in rows)
    best = _listed([f"`{row['preset']}`" for row in rows if row["lost"] - row["gained"] == least])
    return (
        f"Beside {first['preset']}, which takes {first['passes_per_token']:.2f} passes a token and is right in "
        f"{first['accuracy']:.0%}: fewest passes with `{fewest['preset']}` ({fewest['passes_per_token']:.2f}, "
        f"{fewest['accuracy']:.0%} right); most right with {best}."
    )


def caches() -> str:
    """Which schemes lose answers, and the fewest bits that lose none."""
    first, *rows = rows_of("caches")
    kept = [row for row in rows if not row["lost"]]
    smallest = min(kept, key=lambda row: row["bits"], default=first)
    return (
        f"{_losses(first, rows, 'schemes', 'scheme')} The fewest bits without a lost answer: "
        f"`{smallest['scheme']}`, {smallest['bits']:g} bits a value."
    )


def sparsity() -> str:
    """Which rules lose answers, and the most zeros that lose none."""
    first, *rows = rows_of("sparsity")
    found = [_losses(first, rows, "rules and settings", "rule")]
    for kind in ("activations", "attention"):
        kept = [row for row in (first, *rows) if row["kind"] == kind and not row["lost"]]
        if kept:
            most = max(kept, key=lambda row: row["sparsity"])
            found.append(f"Most zeros in {kind} without a lost answer: `{most['rule']}`, {most['sparsity']:.0%}.")
    return " ".join(found)


def policies() -> str:
    """Which modes and policies lose answers."""
    first, *rows = rows_of("policies")
    return _losses(first, rows, "modes and policies", "policy")


def faults() -> str:
    """How many faults destroy, cost and hide."""
    first, *rows = rows_of("faults")
    destroy, cost, hide = (sum(row["effect"] == effect for row in rows) for effect in EFFECTS)
    return (
        f"Of {len(rows)} faults, {destroy} destroy more than half of the {first['right']} right answers, "
        f"{cost} cost more than they gain, and {hide} hide: a score of answers does not show them."
    )


def _losses(first: Row, rows: Sequence[Row], what: str, key: str) -> str:
    """How many lose nothing, how many more than half, and the largest losses."""
    none, half = sum(not row["lost"] for row in rows), sum(row["lost"] > first["right"] / 2 for row in rows)
    most = sorted((row for row in rows if row["lost"]), key=lambda row: -row["lost"])[:SHOWN]
    largest = ", ".join(f"`{row[key]}` ({row['lost']})" for row in most)
    counted = (
        f"Of {len(rows)} {what}, {none or 'none'} lose none of the {first['right']} right answers, "
        f"and {half or 'none'} more than half."
    )
    return counted + (f" The largest losses: {largest}." if most else "")


def _listed(names: Sequence[str]) -> str:
    """In words.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


TABLES: dict[str, Callable[[], str]] = {
    "skills-models-seen": models,
    "skills-engines-seen": engines,
    "skills-thresholds-seen": thresholds,
    "skills-presets-seen": presets,
    "skills-caches-seen": caches,
    "skills-sparsity-seen": sparsity,
    "skills-policies-seen": policies,
    "skills-faults-seen": faults,
}
