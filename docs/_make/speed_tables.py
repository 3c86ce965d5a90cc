"""The tables of docs/benchmarking.md and xla-cpu.md: speeds, from docs/data/bench-*.json and xla-forms.json.

Which rows a report has is its own affair: every row that was measured is shown, and what was not, with the reason.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from markdown_tables import FOLDER, data, table

KINDS = {
    "speed": "tokens a second, and the roof of the memory's speed",
    "operations": "a decode step, operation by operation",
    "ways": "ways to multiply, by tokens",
}
FRONT = {"decode": "decoding at context {}", "prefill": "a prompt of {} tokens"}
AGAIN = {"start"}  # rows that say what a user waits for: only the newest figure is one
SOUGHT = (*FRONT, "greedy")
Row = dict[str, Any]


def bench() -> str:
    """Every report: what it was measured on, its rows, its pictures."""
    threads = sorted((FOLDER / "images").glob("bench-*-by-threads*.svg"))
    found = [f"![Tokens a second by threads](images/{path.name})" for path in threads]
    found += [_report(path) for path in sorted((FOLDER / "data").glob("bench-*.json"))]
    return "\n\n".join(found) or "No report is there."


def _report(path: Path) -> str:
    text = path.read_bytes()
    report = json.loads(text)
    machine, packages = report["machine"], report["machine"]["packages"]
    roofs = ", ".join(f"{_threads(b['threads'])} {b['best'] / 1e9:.1f} GB/s" for b in report["bandwidth"])
    parts = [
        f"### {path.stem.removeprefix('bench-')}",
        (
            f"{machine['processor']}, {machine['cores']} cores, {report['date'][:10]}; Python {machine['python']}, "
            f"JAX {packages.get('jax', 'none')}; read bandwidth: {roofs}. "
            f"[Report](data/{path.name}) {hashlib.sha256(text).hexdigest()[:12]}, made by"
        ),
        f"<!-- not run: it measures, on a quiet machine -->\n```sh\n{flags_of(report)}{report['command']}\n```",
    ]
    newer = _measured_since(report)
    measured = [r for r in report["results"] if r["timing"] is not None and r["row"] not in newer]
    models = [r for r in measured if r["row"] not in ("gemv", "gemm", "serve")]
    if models:
        head = (
            "row",
            "engine",
            "threads",
            "case",
            "ms, median",
            "p95",
            "tokens/s",
            "of the roof",
            "ratio to this peer",
        )
        parts.append(table(head, [_of_a_model(r) for r in models]))
    parts += [f"- {row}: measured again since, in {name}" for row, name in newer.items()]
    parts += [_missing(r) for r in report["results"] if r["timing"] is None]
    parts += [_engine(e) for e in report["engines"]]
    if any(r["row"] == "serve" for r in measured):
        parts.append("Its rows `serve`, servers under load, are in [serve](serve.md#how-fast).")
    products = [r for r in measured if r["row"] in ("gemv", "gemm")]
    if products:
        parts.append(_products(products))
    images = [f"images/{path.stem}-{kind}.svg" for kind in KINDS]
    for image, said in zip(images, KINDS.values(), strict=True):
        if (FOLDER / image).exists():
            parts.append(f"![{said}]({image})")
    return "\n\n".join(parts)


def _measured_since(report: Row) -> dict[str, str]:
    """Of AGAIN, the rows that a newer report of the same shape has, with its name: these figures are not shown."""
    rows, found = {r["row"] for r in report["results"]} & AGAIN, dict[str, str]()
    for path in (FOLDER / "data").glob("bench-*.json") if rows else ():
        other = json.loads(path.read_bytes())
        if other["shape"] == report["shape"] and other["date"] > report["date"]:
            found |= dict.fromkeys(rows & {r["row"] for r in other["results"]}, path.stem.removeprefix("bench-"))
    return found


def flags_of(report: Row) -> str:
    """The flags of XLA as a command begins with them; empty without any."""
    flags = report["machine"]["variables"].get("XLA_FLAGS")
    return f"XLA_FLAGS={flags} " if flags else ""


def ratios() -> str:
    """Of all reports, every row that a peer has too: how many times faster the engine is."""
    lines = []
    for path in sorted((FOLDER / "data").glob("bench-*.json")):
        report = json.loads(path.read_bytes())
        own = {(r["row"], str(r["case"]), r["threads"]): r for r in report["results"] if r["engine"] == "xla"}
        for r in report["results"]:
            if r["ratio"] is None or r["row"] == "serve":
                continue
            mine = own[r["row"], str(r["case"]), r["threads"]]
            case = ", ".join(f"{k} {v:,}" for k, v in r["case"].items() if k != "steps")
            with_ = f"JAX {report['machine']['packages'].get('jax', 'none')} {flags_of(report)}".strip()
            speeds = (_short(mine["per_second"]), r["engine"], _short(r["per_second"]))
            share = f"{mine['roofline_fraction']:.0%}" if mine["roofline_fraction"] is not None else ""
            lines.append(
                (r["row"], case, r["threads"], with_, *speeds, f"**{r['ratio']:.2f}**", share, report["shape"])
            )
    (usual, _), *_ = Counter(line[3] for line in lines).most_common(1)
    lines.sort(key=lambda line: (line[3] != usual, line[3], line[2], line[0], line[1]))
    head = ("row", "case", "threads", "with", "xla, tokens/s", "peer", "its tokens/s", "ratio", "of the roof", "shape")
    return table(head, lines)


def beside_peers() -> dict[tuple[str, str, int, int], dict[str, tuple[float, Row, Row, str]]]:
    """Flags of XLA, row, context or tokens, threads -> peer -> ratio, our row, its row, file: of the 2B shape, from
    JAX 0.12 on. Of a peer that several reports have, the newest figure counts.
    """
    found: dict[tuple[str, str, int, int], dict[str, tuple[float, Row, Row, str]]] = {}
    for path in sorted((FOLDER / "data").glob("bench-2b-4t*.json"), key=lambda p: json.loads(p.read_bytes())["date"]):
        report = json.loads(path.read_bytes())
        own = {(r["row"], str(r["case"]), r["threads"]): r for r in report["results"] if r["engine"] == "xla"}
        for r in report["results"]:
            if r["ratio"] is None or r["row"] not in SOUGHT or not recent(report):
                continue
            x = next(iter(r["case"].values()))
            peers = found.setdefault((flags_of(report), r["row"], x, r["threads"]), {})
            peers[r["engine"]] = (r["ratio"], own[r["row"], str(r["case"]), r["threads"]], r, path.name)
    return found


def recent(report: Row) -> bool:
    """Whether it is of a JAX that hands products to its library of kernels."""
    return tuple(int(n) for n in report["machine"]["packages"].get("jax", "0").split(".")[:2]) >= (0, 12)


def front() -> str:
    """Of the front page: decoding and prompts of the 2B shape, beside the strongest peer of each case.

    The machine as it is, then with fewer instructions. A case in which ik_llama.cpp was not timed says so.
    """
    lines = []
    for (flags, row, x, threads), peers in sorted(beside_peers().items()):
        if row not in FRONT:
            continue
        ratio, mine, r, name = min(peers.values(), key=lambda each: each[0])
        processor = json.loads((FOLDER / "data" / name).read_bytes())["machine"]["processor"]
        peer = r["engine"] + (
            "" if any(one.startswith("ik_llama.cpp") for one in peers) else " (ik_llama.cpp not timed)"
        )
        speeds = (_short(mine["per_second"]), peer, _short(r["per_second"]), f"**{ratio:.2f}**")
        link = f"[in the report](docs/data/{name})"
        lines.append((FRONT[row].format(f"{x:,}"), _processor(processor, flags), threads, *speeds, link))
    head = ("2B model", "processor", "threads", "JAX engine, tokens/s", "peer", "its tokens/s", "ratio", "command")
    return table(head, lines)


def _processor(name: str, flags: str) -> str:
    """A processor's name without marks; what XLA was held to.

    >>> _processor("Intel(R) Xeon(R) Processor", "XLA_FLAGS=--xla_cpu_max_isa=AVX2 ")
    'Intel Xeon, ours held to AVX2'
    """
    plain = name.replace("(R)", "").removesuffix(" Processor")
    held = flags.partition("--xla_cpu_max_isa=")[2].strip()
    return f"{plain}, ours held to {held}" if held else plain


def _of_a_model(r: Row) -> tuple[object, ...]:
    case = ", ".join(f"{k} {v}" for k, v in r["case"].items() if k != "steps")
    times = (_short(1e3 * r["timing"][name]) for name in ("median", "p95"))
    speed = _short(r["per_second"]) if r["per_second"] else ""
    share = f"{r['roofline_fraction']:.0%}" if r["roofline_fraction"] is not None else ""
    ratio = f"{r['ratio']:.2f}" if r["ratio"] is not None else ""
    return r["row"], r["engine"], r["threads"], case, *times, speed, share, ratio


def _missing(r: Row) -> str:
    case = " ".join(f"{k} {v}" for k, v in r["case"].items())
    return f"- {r['row']} {case}, {_threads(r['threads'])}: {r['status']}, {r['why']}"


def _engine(e: Row) -> str:
    facts = {
        "load": e["load"] and f"{e['load']:.2f} s",
        "first token, cold": e["cold"] and f"{e['cold']:.2f} s",
        "warm": e["warm"] and f"{e['warm']:.2f} s",
        "peak memory": e["peak_memory"] and f"{e['peak_memory'] / 1e6:,.0f} MB",
        "after a warm start": e.get("warm_memory") and f"{e['warm_memory'] / 1e6:,.0f} MB",
        "packed weights": e["packed_bytes"] and f"{e['packed_bytes'] / 1e6:,.0f} MB",
    }
    said = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    options = "".join(f" {name}={value}" for name, value in e["options"].items())
    return f"- {e['name']}{options}, {_threads(e['threads'])}: {e['judged']}; {said}"


def _products(rows: list[Row]) -> str:
    """GMAC/s: a line for each matrix, way and number of threads; tokens across."""
    tokens = sorted({r["case"]["tokens"] for r in rows})
    found: dict[tuple[object, ...], dict[int, float]] = {}
    for r in rows:
        key = (r["case"]["matrix"], r["threads"], f"{r['engine']}: {r['case']['way']}")
        found.setdefault(key, {})[r["case"]["tokens"]] = r["gmacs"]
    lines = [(*key, *(_short(speeds[n]) if n in speeds else "" for n in tokens)) for key, speeds in found.items()]
    return table(("matrix", "threads", "way", *(f"GMAC/s, {n} tokens" for n in tokens)), lines)


def forms() -> str:
    """Slow and fast forms side by side."""
    report = data("xla-forms")
    rows = []
    for r in report["forms"]:
        speed = f"{_short(r['slow_gmacs'])} / {_short(r['fast_gmacs'])}" if "slow_gmacs" in r else ""
        what = _short(r["slow_ms"]), _short(r["fast_ms"]), f"**{r['ratio']:g}**"
        escaped = (text.replace("|", "\\|") for text in (r["slow"], r["fast"]))
        rows.append((r["name"], *escaped, *what, speed))
    head = ("finding", "slow form", "fast form", "slow, ms", "fast, ms", "ratio", "GMAC/s or G weights/s")
    said = f"{report['processor']}, {report['threads']} thread, JAX {report['jax']}, {report['date'][:10]}."
    return f"{table(head, rows)}\n\n{said}"


def skipping() -> str:
    """What skipping the zeros after the squared ReLU would save: kjv-ar's share of them, and the times."""
    (own,) = [row for row in data("sparsity-cosine")["model"] if row["rule"] == "none"]
    zeros = own["places"]["down_in"]
    rows = [r for r in data("xla-forms")["forms"] if r["name"].startswith("skipping zeros")]
    lines = [
        (r["name"].removeprefix("skipping zeros, "), _short(r["slow_ms"]), _short(r["fast_ms"]), f"{r['ratio']:g}")
        for r in rows
    ]
    head = ("activations", "int8 columns gathered, ms", "all of them as bits, ms", "ratio")
    return f"kjv-ar: {zeros:.1%} zeros before the down projections, {1 - zeros:.1%} left.\n\n{table(head, lines)}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _short(value: float) -> str:
    """Three digits.

    >>> _short(1234.5), _short(12.345), _short(0.012345)
    ('1,230', '12.3', '0.0123')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
