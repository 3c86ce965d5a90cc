"""The table of docs/serve.md: an hour of all kinds of clients."""

from markdown_tables import data, table


def soak() -> str:
    """What an hour's clients did, and the memory."""
    lines = []
    for r in data("serve-soak")["rows"]:
        counts, memory = r["counts"], r["mib"]
        right = sum(count for kind, count in counts.items() if kind.startswith("right"))
        wrong = sum(count for kind, count in counts.items() if kind.startswith(("wrong", "failed")))
        others = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if not kind.startswith("right"))
        later = memory[len(memory) // 4 :]
        flat = f"{memory[0]:g}; then {min(later):g} to {max(later):g}"
        lines.append((r["backend"], f"{r['seconds'] / 60:g}", f"{right:,}", wrong, others, flat))
    head = ("backend", "minutes", "right answers", "wrong or failed", "others", "resident MiB")
    return table(head, lines)
