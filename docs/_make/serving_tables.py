"""The tables of docs/serve.md: mixes, an hour of all kinds of clients, other servers, and crowds."""

from typing import Any

from markdown_tables import data, measured, table

Row = dict[str, Any]
LOAD = "make serve-load"
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
        counts = report["counts"]
        lines = [
            (f"{report['mixes']:,}", f"{counts['requests']:,}", f"{counts['greedy']:,}, {counts['seeded']:,}",
             f"{counts['cancelled']:,}", f"{counts['logits compared']:,}",
             f"{counts['tokens of prompts reused']:,}", len(report["wrong"]))
        ]  # fmt: skip
        head = ("mixes", "requests", "greedy, seeded", "cancelled", "rows of logits compared",
                "tokens of prompts reused", "different, or held after the mix")  # fmt: skip
        return table(head, lines)

    return measured("serve-mixes", "make serve-mixes", made)


def load() -> str:
    """Clients at once, server by server."""

    def made(report: Row) -> str:
        rows = sorted(report["rows"], key=lambda row: (row["clients"], row["server"] != "tritgold serve"))
        lines = [(f"{row['clients']:g}", row["server"], *_figures(row)) for row in rows]
        machine, rounds = report["machine"], report["rounds"]
        measured_in = "one round" if rounds == 1 else f"medians of {rounds} rounds"
        return (
            f"{table(('clients', 'server', *FIGURES), lines)}\n\n{machine['cores']} cores, Python "
            f"{machine['python']}; {report['model']}, prompts of {report['prompt_tokens']} ids, {report['tokens']} "
            f"tokens each, {report['slots']} texts a pass, one thread an engine; {measured_in}, "
            f"each server in turn. [Report](data/serve-load.json)."
        )

    return measured("serve-load", LOAD, made)


def direct() -> str:
    """The same core over HTTP, and called."""

    def made(report: Row) -> str:
        rows = sorted(report["direct"], key=lambda row: (row["clients"], row["way"]))
        return table(("clients", "way", *FIGURES), [(f"{r['clients']:g}", r["way"], *_figures(r)) for r in rows])

    return measured("serve-load", LOAD, made)


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


def _figures(r: Row) -> tuple[str, ...]:
    names = ("first_token_p50", "first_token_p95", "first_token_p99", "p50", "p95", "p99")
    return f"{r['tokens_per_second']:.3g}", *(_ms(r[name]) for name in names)


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
