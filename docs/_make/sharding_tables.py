"""The tables of docs/sharding.md: the same bits, what two devices cost, and what a process holds."""

from typing import Any

from markdown_tables import measured, table

Report = dict[str, Any]
TIMES = {(1, 1): "1 device, 1 thread", (1, 2): "1 device, XLA's 2 threads", (2, 2): "2 devices"}


def bits() -> str:
    """Model by model: over how many devices and processes, and what was not the same."""

    def made(report: Report) -> str:
        models: dict[str, list[Report]] = {}
        for row in report["rows"]:
            models.setdefault(row["model"], []).append(row)
        lines = []
        for model, rows in models.items():
            over = sorted({name for row in rows for name in row["over"]}, key=lambda name: (len(name), name))
            compared = sum(len(row["compared"]) * (len(row["over"]) - 1) for row in rows)
            different = sum(len(row["differing"]) for row in rows)
            ways = ", ".join(f"{row['kv_cache']} {row['formulation']}" for row in rows)
            lines.append((f"`{model}`", ways, ", ".join(over), compared, different))
        head = ("model", "KV cache and formulation", "devices, or processes", "hashes compared", "different")
        missing = f"\n\nNot run yet: {report['missing']} of {report['missing'] + len(report['rows'])} rows."
        return table(head, lines) + (missing if report["missing"] else "")

    return measured("sharding-bits", "make sharding", made)


def scaling() -> str:
    """Steps and prompts by devices and threads, and what the formulas say."""

    def made(report: Report) -> str:
        lines = []
        for point in report["measured"]:
            name = TIMES[point["devices"], point["threads"]]
            tokens = report["sizes"]["prompt"] / point["prompt"]
            lines.append((name, f"{1e3 * point['step']:.1f}", f"{1 / point['step']:.1f}", f"{tokens:.0f}"))
        predicted, shared = report["predicted"], report["measured"][-1]
        lines.append(("2 devices, by the formulas", f"{1e3 * predicted['seconds']:.1f}", "", ""))
        found = table(("", "ms a token", "tokens/s", "tokens/s of a prompt"), lines)
        return (
            f"{found}\n\n{shared['collectives']['a_token']} collectives a token, {1e6 * shared['collective']:.0f} us "
            f"each; {report['sizes']['layers']} layers."
        )

    return measured("sharding", "make sharding-scale", made)


def memory() -> str:
    """Two processes beside their shares."""

    def made(report: Report) -> str:
        lines = [
            (
                number,
                *(f"{process[name] / 1e6:,.0f}" for name in ("share", "held", "most")),
                f"{process['most_of_share']:.0%}",
                f"{process['seconds']:.0f}",
            )
            for number, process in enumerate(report["processes"])
        ]
        head = ("process", "its share, MB", "holds", "most while loading", "most, of its share", "seconds to load")
        return f"{table(head, lines)}\n\n{report['layers']} layers, a file of {report['file'] / 1e9:.2f} GB."

    return measured("sharding-memory", "make sharding-scale", made)


TABLES = {"sharding-bits": bits, "sharding-scaling": scaling, "sharding-memory": memory}
