"""The tables of docs/speed-limits.md: each goal beside what was measured, and where the time of the slow rows goes.

All from docs/data/bench-*.json. A figure is that of the newest report; against peers, the lowest of their newest.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import speed_tables
from markdown_tables import FOLDER, table
from measure.block_cost import points, sizes

from tritgold.weights import LINEARS
from tritgold_conformance.bench.shapes import ModelShape, shape_of
from tritgold_conformance.bench.synthetic import model_bytes

SHAPE = "2b-4t"
THREADS = (1, 2)
MATRIX = (6912, 2560)  # gate and up of the 2B shape, down turned over: three quarters of its weights
NONE = "not measured"
Report = dict[str, Any]
Figure = Callable[[Report, int], float | None]  # of a report and a number of threads


def reports() -> Iterator[tuple[str, Report]]:
    """Names and reports of the 2B shape, oldest first; without those of an old JAX or of restricted instructions."""
    found = [(p.stem, json.loads(p.read_bytes())) for p in (FOLDER / "data").glob(f"bench-{SHAPE}*.json")]
    for name, report in sorted(found, key=lambda each: each[1]["date"]):
        if not speed_tables.flags_of(report) and speed_tables.recent(report):
            yield name, report


def goals() -> str:
    """Every goal; what is short of it is bold."""
    rows = [_beside_peers(*goal) for goal in BESIDE_PEERS]
    rows += [_own(*goal) for goal in OWN]
    return table(("2B model", "goal", *(f"{n} thread{'s' * (n > 1)}" for n in THREADS)), rows)


def _beside_peers(what: str, goal: float, row: str, x: int, quantised: bool) -> tuple[str, ...]:
    """The lowest ratio to a peer. quantised: whether peers with a quantised head count."""
    found = speed_tables.beside_peers()
    cells = []
    for threads in THREADS:
        peers = {
            name: ratio
            for name, (ratio, *_) in found.get(("", row, x, threads), {}).items()
            if quantised or "+" not in name
        }
        if not peers:
            cells.append(NONE)
            continue
        ratio, name = min((ratio, name) for name, ratio in peers.items())
        cells.append(_cell(f"{ratio:.2f}", ratio >= goal) + f" of {name}")
    return (what, f"{goal:g}", *cells)


def _own(what: str, goal: float, said: str, at_most: bool, of: Figure) -> tuple[str, ...]:
    """A figure of the engine alone, from the newest report that has it. at_most: whether less is better."""
    cells = []
    for threads in THREADS:
        found = [value for _, report in reports() if (value := of(report, threads)) is not None]
        if not found:
            cells.append(NONE)
            continue
        shown = said.format(found[-1])
        cells.append(_cell(shown, found[-1] <= goal if at_most else found[-1] >= goal))
    return (what, said.format(goal), *cells)


def _cell(text: str, met: bool) -> str:
    return text if met else f"**{text}**"


def _results(report: Report, row: str, threads: int) -> list[dict[str, Any]]:
    return [
        r for r in report["results"]
        if (r["row"], r["engine"], r["threads"]) == (row, "xla", threads) and r["timing"] is not None
    ]  # fmt: skip


def batch(report: Report, threads: int) -> float | None:
    """Tokens a second of 32 sequences by those of one."""
    speeds = {r["case"]["sequences"]: r["per_second"] for r in _results(report, "batch", threads)}
    return speeds[32] / speeds[1] if {1, 32} <= speeds.keys() else None


def whole_pass(report: Report, threads: int) -> float | None:
    """A pass over a block and the token before it, in steps: the least of the rows whose number of passes is known."""
    if not (_results(report, "block-diffusion", threads) and _results(report, "decode", threads)):
        return None
    own = {**report, "results": [r for r in report["results"] if r["threads"] == threads]}
    found = [float(steps) for said, _, _, steps, *_ in points(own) if said.startswith("block ")]
    return min(found, default=None)


def share(report: Report, threads: int) -> float | None:
    """Of the read bandwidth, decoding at context 64."""
    found = [r for r in _results(report, "decode", threads) if r["case"]["context"] == 64]
    return found[0]["roofline_fraction"] if found else None


def warm(report: Report, threads: int) -> float | None:
    """Seconds from the path to the first token, with a warm cache."""
    found = [r for r in _results(report, "start", threads) if r["case"]["cache"] == "warm"]
    return found[0]["timing"]["median"] if found else None


def memory(report: Report, threads: int) -> float | None:
    """Resident bytes after a warm start by those of the file."""
    shape = shape_of(SHAPE)
    assert isinstance(shape, ModelShape)
    found = [e["warm_memory"] for e in report["engines"] if e["threads"] == threads and e.get("warm_memory")]
    return found[0] / model_bytes(shape) if found else None


# What, at least how many times a peer's speed, row, context or tokens, whether quantised heads count.
BESIDE_PEERS = (
    ("decoding at context 64, float16 heads", 1.2, "decode", 64, False),
    ("greedy at context 64, any head", 1.1, "greedy", 64, True),
    ("a prompt of 8", 1.3, "prefill", 8, True),
    ("a prompt of 32", 1.3, "prefill", 32, True),
    ("a prompt of 128", 1.3, "prefill", 128, True),
    ("a prompt of 512", 1.3, "prefill", 512, True),
    ("decoding at context 4,000", 1.3, "decode", 4000, True),
)
# What, the goal, how it is shown, whether it is at most that, and the figure in a report.
OWN = (
    ("a batch of 32 sequences, in single ones", 6, "{:.1f}", False, batch),
    ("a pass over 33 positions, in steps", 10, "{:.1f}", True, whole_pass),
    ("share of the read bandwidth, context 64", 0.75, "{:.2f}", False, share),
    ("path to first token, warm", 3, "{:.1f} s", True, warm),
    ("resident memory, in files", 1.25, "{:.2f}", True, memory),
)


def profiles() -> str:
    """A decode step by parts: each report that has a profile."""
    rows = []
    for name, report in reports():
        for one in report["profiles"]:
            parts: dict[str, list[float]] = {"matrices": [0.0, 0.0], "head": [0.0, 0.0], "attention": [0.0, 0.0]}
            rest = 0.0
            for part in one["parts"]:
                group = parts.get("matrices" if part["name"] in LINEARS else part["name"])
                if group is None:
                    rest += part["seconds"]
                else:
                    group[0] += part["seconds"]
                    group[1] += part["bytes_moved"]
            cells = (f"{1e3 * s:.1f} ({moved / s / 1e9:.1f})" if s else "" for s, moved in parts.values())
            roof = f"{one['roof'] / 1e9:.1f}" if one["roof"] else ""
            link = f"[{name.removeprefix('bench-')}](data/{name}.json)"
            step = f"{1e3 * one['step']:.1f}"
            rows.append((one["threads"], f"{one['context']:,}", step, *cells, f"{1e3 * rest:.1f}", roof, link))
    rows.sort(key=lambda row: (row[1] != "64", row[0]))
    head = ("threads", "context", "step, ms", "matrices, ms (GB/s)", "head, ms (GB/s)", "attention, ms (GB/s)")
    return table((*head, "the rest, ms", "read bandwidth, GB/s", "report"), rows)


def one_matrix() -> str:
    """A matrix of gate and up by tokens: bits, unpacking, the product, both; and whole prompts, by their weights."""
    size = "x".join(map(str, MATRIX))
    path = FOLDER / "data" / f"bench-{size}.json"
    if not path.exists():
        rest = "--rows gemv,gemm,unpack --tokens 8,32,64 --threads 1,2"
        return f"*Not measured yet: `tritgold bench --shape {size} {rest}`.*"
    found: dict[tuple[str, int, int], float] = {}
    for r in json.loads(path.read_bytes())["results"]:
        if r["timing"] is not None and r["engine"] == "xla":
            tokens = 0 if r["row"] == "unpack" else r["case"]["tokens"]
            found[r["case"]["way"], tokens, r["threads"]] = 1e3 * r["timing"]["median"]
    part = MATRIX[0] * MATRIX[1] / sizes(SHAPE)[0]
    rows = []
    for tokens, threads in sorted({(n, t) for _, n, t in found if n > 1}):
        ways = [("select", tokens), (UNPACKED, 0), (PRODUCT, tokens), ("int8-dot", tokens)]
        own = [found.get((way, n, threads)) for way, n in ways]
        whole = [_prompt(engine, tokens, threads) for engine in ("xla", "ik_llama.cpp")]
        cells = [*own, *(None if s is None else 1e3 * s * part for s in whole)]
        rows.append((tokens, threads, *("" if ms is None else f"{ms:.2f}" for ms in cells)))
    head = ("tokens", "threads", "bits, ms", "unpacking, ms", "product of int8, ms", "both in tiles, ms")
    return table((*head, "of our whole prompt, ms", "of ik_llama.cpp's, ms"), rows)


UNPACKED, PRODUCT = "XLA: bit planes", "w + 1, int8 columns"


def _prompt(engine: str, tokens: int, threads: int) -> float | None:
    """Seconds of a prompt in the newest report that has it beside ik_llama.cpp; of that, the faster of its heads."""
    newest = None
    for _, report in reports():
        rows = [
            r for r in report["results"]
            if (r["row"], r["threads"], r["case"].get("tokens")) == ("prefill", threads, tokens) and r["timing"]
        ]  # fmt: skip
        if any(r["engine"].startswith("ik_llama.cpp") for r in rows):
            own = [r["timing"]["median"] for r in rows if r["engine"].partition("+")[0] == engine]
            newest = min(own, default=newest)
    return newest


def several() -> str:
    """Steps of several sequences, for each number of threads from the newest report that has them."""
    rows = []
    for threads in THREADS:
        measured = [found for _, report in reports() if (found := _results(report, "batch", threads))]
        steps = measured[-1] if measured else []
        one = min((r["timing"]["median"] for r in steps if r["case"]["sequences"] == 1), default=None)
        for r in steps:
            count, seconds = r["case"]["sequences"], r["timing"]["median"]
            gain = "" if one is None else f"{count * one / seconds:.1f}"
            rows.append((count, threads, f"{1e3 * seconds:.1f}", f"{count / seconds:.1f}", gain))
    if not rows:
        rest = "--rows batch --sequences 1,8,32 --threads 1,2"
        return f"*Not measured yet: `tritgold bench --shape {SHAPE} {rest}`.*"
    return table(("sequences", "threads", "a step, ms", "tokens/s", "in single sequences"), rows)


TABLES = {
    "limits-goals": goals,
    "limits-profiles": profiles,
    "limits-one-matrix": one_matrix,
    "limits-several": several,
}
