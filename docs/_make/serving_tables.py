"""The tables of docs/serve.md: mixes, an hour of all kinds of clients, other servers, and crowds."""

from typing import Any

from markdown_tables import data, measured, table

Row = dict[str, Any]
LOAD = "make serve-load"
BENCH, SERVED, OURS = "tritgold bench --rows serve", "bench-notebook-2b-serve", "tritgold serve"
FIGURES = ("tokens/s", "first token, ms: p50", "p95", "p99", "whole answer, ms: p50", "p95", "p99")


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


def mixes() -> str:
    """Random mixes beside the answers alone."""

    def made(report: Row) -> str:
        lines = [
            (row["backend"], f"{row['mixes']:,}", f"{row['counts']['requests']:,}",
             f"{row['counts']['greedy']:,}, {row['counts']['seeded']:,}", f"{row['counts']['cancelled']:,}",
             f"{row['counts']['logits compared']:,}", f"{row['counts']['tokens of prompts reused']:,}",
             len(row["wrong"]))
            for row in report["rows"]
        ]  # fmt: skip
        head = ("backend", "mixes", "requests", "greedy, seeded", "cancelled", "rows of logits compared",
                "tokens of prompts reused", "different, or held after the mix")  # fmt: skip
        return table(head, lines)

    return measured("serve-mixes", "make serve-mixes", made)


def load() -> str:
    """Clients at once, server by server."""

    def made(report: Row) -> str:
        machine, case = report["machine"], report["results"][0]["case"]
        processor = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}"
        first = report["results"][0]
        threads, rounds = first["threads"], first["timing"]["samples"] // max(8, 2 * case["clients"])
        return (
            f"{_served(report, 'server', 'http', 'engine')}\n\n{processor}, "
            f"{report['date'][:10]}; {report['shape']}, prompts of {case['prompt']} ids, "
            f"{case['steps']} tokens each, 4 texts a pass, {threads} thread an engine; "
            f"{rounds} rounds, each server in turn. [Report](data/{SERVED}.json)."
        )

    return measured(SERVED, BENCH, made)


def direct() -> str:
    """The same core over HTTP, and called."""
    return measured(SERVED, BENCH, lambda report: _served(report, "way", "xla", "way"))


def _served(report: Row, what: str, only: str, name: str) -> str:
    """Pairs of results: to the first token, to the end. only: the way or the engine that is shown."""
    found: dict[tuple[int, str], list[Row]] = {}
    for r in report["results"]:
        if r["row"] == "serve" and only in (r["engine"], r["case"]["way"]) and r["timing"] is not None:
            found.setdefault((r["case"]["clients"], r["engine"] if name == "engine" else r["case"]["way"]), []).append(
                r
            )
    lines = [
        (clients, OURS if label == "xla" else label, f"{whole['per_second']:.3g}",
         *(_ms(r["timing"][p]) for r in (first, whole) for p in ("p50", "p95", "p99")))
        for (clients, label), (first, whole) in found.items()
    ]  # fmt: skip
    return table(("clients", what, *FIGURES), lines)


def refusing() -> str:
    """Crowds, and what became of them."""

    def made(report: Row) -> str:
        lines = []
        for r in report["refusing"]:
            refused = ", ".join(f"{count} by {status}" for status, count in r["refused"].items()) or "none"
            times = r["retry_after"]
            retry = f"{times[0]} s" if len(times) == 1 else f"{times[0]} to {times[-1]} s" if times else "-"
            failed = ", ".join(f"{count} {name}" for name, count in r["failed"].items()) or "none"
            speed = f"{r['requests_per_second']:.3g}", f"{r['tokens_per_second']:.3g}"
            lines.append(
                (r["server"], r["clients"], r["answered"], refused, retry, _ms(r["refused_after"]), failed, *speed,
                 _ms(r["p99"]))
            )  # fmt: skip
        head = ("server", "at once", "answered", "refused", "Retry-After", "told within, ms", "without an answer",
                "requests/s", "tokens/s", "p99, ms")  # fmt: skip
        return table(head, lines)

    return measured("serve-load", LOAD, made)


def _ms(seconds: float | None) -> str:
    """Three digits.

    >>> _ms(1.2345), _ms(0.0012345), _ms(None)
    ('1,230', '1.23', '-')
    """
    if seconds is None:
        return "-"
    rounded = float(f"{1e3 * seconds:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


TABLES = {
    "serve-soak": soak,
    "serve-mixes": mixes,
    "serve-load": load,
    "serve-direct": direct,
    "serve-refusing": refusing,
}
