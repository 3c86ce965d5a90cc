"""What all model cards have: paragraphs, tables, recipe, curve, zeros, continuations, thresholds, files."""

import hashlib
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from measure.golden_outputs import DIFFUSED, FILE
from tritgold.checkpoint import Checkpoint
from tritgold.weights import LINEARS

CARD = "README.md"
CURVE_ROWS = 12


def filled(text: str) -> str:
    """A paragraph, filled."""
    return textwrap.fill(" ".join(text.split()), 110, break_long_words=False, break_on_hyphens=False)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def opening(kind: str, about: str, checkpoint: Checkpoint) -> Iterator[str]:
    """What it is, and its sizes."""
    c = checkpoint.config
    ternary = sum(weight.shape[0] * weight.shape[1] for _, weight in checkpoint.weights.linears())
    yield filled(f"A BitNet b1.58 language model of {ternary / 1e6:.2f} M ternary weights: {kind}. {about}")
    yield filled(f"""
        {c.layers} layers, hidden {c.hidden}, FFN {c.inter} with squared ReLU, {c.heads}/{c.kv_heads} heads of
        {c.head_dim}, sub-norms, RoPE theta {c.rope_theta:g}, vocabulary {c.vocab}, tied bf16 head. Hugging Face
        layout: packed uint8 weights, bf16 scales (multiplied), gains and embedding.""")


def recipe(run: dict[str, Any], command: str) -> Iterator[str]:
    """How it was trained, and where. command: that does it again."""
    r = run["recipe"]
    masters = "masters drawn anew for the exported" if r.get("from_file") else "the masters of"
    start = f" from {masters} {r['start']}" if r["start"] else ""
    decay = f"weight decay {r['decay']}" if r["decay"] else "no weight decay"
    products = " Matrix products of bfloat16 numbers, sums in float32." if r.get("products") == "bfloat16" else ""
    shared = f", {r['passages']:.0%} begun with a well-known passage" if r.get("passages") else ""
    causal = ""
    if r.get("causal"):
        causal = """ Half of the rows are causal inside their blocks too, and learn the next token of the clean text as
        well: their loss is added."""
    rows = f"{r['batch']} sequences of {r['length']} tokens{shared}"
    yield "## Recipe"
    yield f"    {command}"
    yield filled(f"""
        Seed {r["seed"]}; {r["steps"]:,} steps{start}, each of {rows}.{causal} Ternary from the first step: absmean
        trits with the scale rounded to bf16, int8 activations by token, gradients straight through (arXiv
        2402.17764). Matrices by Muon at a peak of {r["peak"]}, embedding and gains by Adam at {r["small"]};
        warm-up of {r["warmup"]} steps, then the two stages of the BitNet notes ("The Era of 1-bit LLMs:
        Training Tips, Code and FAQ"; arXiv 2504.12285): falling to 8/15 at half time with {decay}, then from
        1/3 to 0 without.{products} Positions beyond {r["length"]} were never trained; the context of
        {r["context"]:,} is for measuring.""")
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    yield filled(f"Hardware: {run['machine']}; {run['seconds'] / 60:.0f} minutes. Software: {versions}.")


def curve(run: dict[str, Any], reached: str) -> Iterator[str]:
    """Loss by step. reached: what was reached on held-out data, in a sentence."""
    points = run["curve"]
    every = -(-len(points) // CURVE_ROWS)
    yield "## Curve"
    rows = [(step, f"{loss:.3f}") for step, loss in points[::-1][::every][::-1]]
    yield table(("step", "training loss, nats a token, mean of the last 25"), rows)
    yield filled(f"{reached} All points: `training.json` beside the folder.")


def zeros(checkpoint: Checkpoint) -> Iterator[str]:
    """By matrix."""
    yield "## Share of zeros"
    rows = []
    for number, layer in enumerate(checkpoint.weights.layers):
        trits = [layer.linear(name).ternary().trits for name in LINEARS]
        rows.append((number, *(f"{float((t == 0).mean()):.3f}" for t in trits)))
    yield table(("layer", *LINEARS), rows)


def continuations(golden: dict[str, Any], about: str) -> Iterator[str]:
    """The ten openings. about: where they are from."""
    yield "## Continuations"
    yield filled(f"""
        Mode {golden["mode"]}; a line break is shown as " / ". {about} Token
        ids, hashes of the traces and the statistics of every activation are in `{FILE}`.""")
    for way in sorted({c["block"] for c in golden["continuations"]}, reverse=True):
        rows = [c for c in golden["continuations"] if c["block"] == way]
        yield "Token after token, greedily:" if way == 1 else f"By block diffusion, threshold {rows[0]['threshold']}:"
        yield table(("opening", "goes on"), [(c["prompt"], c["text"].strip().replace("\n", " / ")) for c in rows])


def thresholds(measured: list[dict[str, Any]]) -> Iterator[str]:
    """Passes and agreement by threshold."""
    yield "## Threshold"
    yield filled(f"""
        The ten openings continued by up to {DIFFUSED} tokens. Passes include the one that keeps each finished block.
        Agreement is with deciding one token a pass (threshold 1): the share of positions with the same token, and
        the mean number of tokens before the first other one.""")
    rows = []
    for row in measured:
        openings = row["openings"]
        total = {key: sum(opening[key] for opening in openings) for key in ("tokens", "forwards", "same", "of")}
        prefix = sum(opening["prefix"] for opening in openings) / len(openings)
        passes, same = total["forwards"] / total["tokens"], total["same"] / total["of"]
        rows.append((f"{row['threshold']:g}", f"{passes:.2f}", f"{same:.0%}", f"{prefix:.1f}"))
    yield table(("threshold", "passes a token", "same token", "before the first difference"), rows)


def files(folder: Path, golden: dict[str, Any]) -> Iterator[str]:
    """The files of the folder and their hashes."""
    yield "## Files"
    files = sorted(path for path in folder.iterdir() if path.name != CARD)
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    rows = [(p.name, f"{p.stat().st_size:,}", f"`{digest}`") for p, digest in zip(files, hashes, strict=True)]
    yield table(("file", "bytes", "SHA-256"), rows)
    yield f"Model hash (what the arithmetic uses): `{golden['model_hash']}`."
