"""The tables of the pages (PAGES) that were measured, or are the graph: put there from docs/data, and from the code.

``python docs/_make/measured_tables.py`` writes them between the marks ``<!-- table NAME -->`` and ``<!-- end -->``;
``make measurements`` measures first. A test compares, so that no figure in a page is typed by hand.
"""

import re
from collections.abc import Callable
from typing import Any

import diagnosis_tables
import graph_tables
import limit_tables
import peer_tables
import serving_tables
import sharding_tables
import skills_seen
import skills_tables
import speed_tables
from markdown_tables import FOLDER, data, figure, table
from measure import block_cost
from scoreboard import tables as scoreboard_tables

from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme

PAGES = (
    "decoding.md",
    "kv-cache.md",
    "sparsity.md",
    "benchmarking.md",
    "block-diffusion-cost.md",
    "xla-cpu.md",
    "speed-limits.md",
    "peers-judged.md",
    "diagnosis.md",
    "judging.md",
    "traces.md",
    "serve.md",
    "sharding.md",
    "skills.md",
    "scoreboard.md",
    "../README.md",
)
MIB = 1 << 20


def main() -> None:
    """Write the tables into their pages."""
    for name in PAGES:
        page = FOLDER / name
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def filled(page: str) -> str:
    """A page with its tables as they are now."""
    return re.sub(
        r"<!-- table ([a-z0-9-]+) -->\n.*?<!-- end -->",
        lambda found: f"<!-- table {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end -->",
        page,
        flags=re.DOTALL,
    )


def kv_error() -> str:
    """Schemes by error."""
    report = data("kv-error")
    contexts = sorted({row["context"] for row in report["attention"]})
    loud = max(row["outlier"] for row in report["attention"])
    error = {(r["scheme"], r["context"], r["outlier"]): r for r in report["attention"]}
    rows = []
    for model in report["model"]:
        name = model["scheme"]
        plain = [error[name, context, 1.0] for context in contexts]
        rows.append(
            (
                f"`{name}`",
                f"{plain[0]['bits']:g}",
                *(figure(row["relative"]) for row in plain),
                f"{plain[1]['cosine']:.5f}",
                figure(error[name, contexts[1], loud]["relative"]),
                figure(model["divergence"]),
                f"{model['same_token']:.1%}",
            )
        )
    head = ("scheme", "bits a value", *(f"error, {n:,} tokens" for n in contexts), f"cosine, {contexts[1]}")
    return table((*head, f"error, channel x {loud:g}", "kjv-ar, nats", "same token"), rows)


def kv_memory() -> str:
    """The notebook's table, as arithmetic."""
    shape = Sizes(layers=32, kv_heads=32, head_dim=128)
    tokens = (1024, 2048, 4096, 8192, 16384)
    names = ("f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fake_fp8", "int8", "q8_0", "q4_0", "kivi4", "kivi2")
    rows = [(f"`{n}`", *(f"{kv_scheme(n).cache_bytes(shape, t) / MIB:,.4g}" for t in tokens)) for n in names]
    return table(("MiB", *(f"{t:,} tokens" for t in tokens)), rows)


def diffusion(figure_of: Callable[[dict[str, Any]], str]) -> str:
    """Ways by threshold, and one token a pass in the last column."""
    report = data("diffusion-thresholds")
    thresholds = sorted({row["threshold"] for row in report["rows"] if row["threshold"] is not None})
    found = {(row["way"], row["threshold"]): figure_of(row) for row in report["rows"]}
    rows = []
    for single in report["one_a_pass"]:
        way = single["way"]
        at = [found.get((way, t), found.get((way, None), "")) for t in thresholds]
        rows.append((f"`{way}`".replace(", no limit`", "`, no limit"), *at, figure_of(single)))
    return table(("", *(f"{t:g}" for t in thresholds), "one a pass"), rows)


def adaptive() -> str:
    """Adaptive beside iterative at 0.9: with the limit of ten passes, without, and with bolder passes."""
    report = data("diffusion-thresholds")
    at = {row["way"]: row for row in report["rows"] if row["threshold"] == 0.9}
    found = [
        ("iterative: 0.9", at["iterative, no limit"]),
        ("adaptive: 0.5, 0.7, then 0.9", at["adaptive, no limit"]),
        *((f"{t[0]:g}, {t[1]:g}, then {t[2]:g}", row) for row in report["lowered"] for t in (row["thresholds"],)),
        ("iterative: 0.9, ten passes", at["iterative"]),
        ("adaptive: 0.5, 0.7, then 0.9, ten passes", at["adaptive"]),
    ]
    rows = [(name, f"{r['forwards_per_block']:.1f}", f"{r['same']:.0%}", f"{r['nats']:.2f}") for name, r in found]
    return table(("thresholds", "forwards a block", "same as one a pass", "nats a token"), rows)


def sparse_activations() -> str:
    """Rules for activations."""
    report = data("sparsity-cosine")
    gaussian = {row["rule"]: row for row in report["activations"]}
    rows = []
    for model in report["model"]:
        if model["kind"] == "activations":
            row = gaussian.get(model["rule"])
            closed = f"{row['expected']:.4f}" if row and row["expected"] else ""
            shown = (f"{row['sparsity']:.1%}", f"{row['cosine']:.4f}", closed) if row else ("", "", "")
            rows.append((f"`{model['rule']}`", *shown, *_of_model(model)))
    head = ("rule", "sparsity", "cosine", "closed form", "kjv-ar: sparsity", "cosine of logits", "same token")
    return table(head, rows)


def sparse_attention() -> str:
    """Rules for attention."""
    report = data("sparsity-cosine")
    model = {row["rule"]: row for row in report["model"]}
    rows = [
        (f"`{r['rule']}`", f"{r['sparsity']:.1%}", f"{r['cosine']:.4f}", *_of_model(model[r["rule"]]))
        for r in report["attention"]
    ]
    return table(("rule", "sparsity", "cosine", "kjv-ar: sparsity", "cosine of logits", "same token"), rows)


def sparse_places() -> str:
    """Where kjv-ar has zeros by itself."""
    (row,) = [row for row in data("sparsity-cosine")["model"] if row["rule"] == "none"]
    (products,) = [row for row in data("sparsity-cosine")["model"] if row["rule"] == "zero_skipping"]
    shares = [*row["places"].values(), products["places"]["products"]]
    return table((*row["places"], "all products"), [[f"{share:.1%}" for share in shares]])


def attention_memory() -> str:
    """The notebook's other table: scores of one head, all pairs against a window of 256."""
    rows = [(f"{n:,}", f"{n * n * 4 / MIB:,.4g}", f"{n * 256 * 4 / MIB:,.4g}") for n in (1024, 2048, 4096, 8192, 16384)]
    return table(("tokens", "all pairs, MiB", "window of 256, MiB"), rows)


def _of_model(row: dict[str, Any]) -> tuple[str, str, str]:
    return f"{row['sparsity']:.1%}", f"{row['cosine']:.4f}", f"{row['same_token']:.0%}"


TABLES: dict[str, Callable[[], str]] = {
    "kv-error": kv_error,
    "kv-memory": kv_memory,
    "tokens-per-forward": lambda: diffusion(lambda row: f"{row['tokens_per_forward']:.2f}"),
    "forwards-per-block": lambda: diffusion(lambda row: f"{row['forwards_per_block']:.1f}"),
    "agreement": lambda: diffusion(lambda row: f"{row['same']:.0%}"),
    "nats": lambda: diffusion(lambda row: f"{row['nats']:.2f}"),
    "adaptive": adaptive,
    "sparse-activations": sparse_activations,
    "sparse-attention": sparse_attention,
    "sparse-places": sparse_places,
    "attention-memory": attention_memory,
    "peers-judged": peer_tables.judged,
    "peers-explained": peer_tables.explained,
    "diagnosis": diagnosis_tables.by_model,
    "diagnosis-noise": diagnosis_tables.noise,
    "diagnosis-right-runs": diagnosis_tables.judged_right,
    "diagnosis-parts": diagnosis_tables.parts,
    "adversary": diagnosis_tables.adversary,
    "adversary-unseen": diagnosis_tables.unseen,
    "diagnosis-placed": diagnosis_tables.placed,
    "bench": speed_tables.bench,
    **block_cost.TABLES,
    "xla-forms": speed_tables.forms,
    "bench-ratios": speed_tables.ratios,
    "skipping": speed_tables.skipping,
    "front-speed": speed_tables.front,
    **limit_tables.TABLES,
    **skills_tables.TABLES,
    **skills_seen.TABLES,
    "operations": graph_tables.operation_table,
    "trace-names": graph_tables.name_table,
    **serving_tables.TABLES,
    **sharding_tables.TABLES,
    **scoreboard_tables.TABLES,
}


if __name__ == "__main__":
    main()
