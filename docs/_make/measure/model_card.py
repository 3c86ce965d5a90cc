"""The model cards of the trained models: README.md beside each, rendered from what training and golden model recorded.

``python -m measure.model_card`` writes them again; no figure in them is typed by hand.
"""

import hashlib
import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from measure.golden_outputs import DIFFUSED, FILE
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import TRAINED, trained_model
from tritgold.weights import LINEARS

CARD = "README.md"
KINDS = {
    "kjv-ar": "autoregressive",
    "kjv-dlm": "block diffusion, adapted from kjv-ar the Fast-dLLM v2 way",
}
CURVE_ROWS = 12


def model_card(name: str) -> str:
    """The card as Markdown."""
    folder = trained_model(name)
    training = json.loads((folder.parent / "training.json").read_text(encoding="utf-8"))
    golden = json.loads((folder / FILE).read_text(encoding="utf-8"))
    checkpoint = open_checkpoint(folder)
    parts = [
        f"# {name}",
        *_opening(name, checkpoint),
        *_data(training["corpus"]),
        *_recipe(training[name]),
        *_quality(name, training),
        *_curve(training[name]),
        *_zeros(checkpoint),
        *_continuations(golden),
        *(_thresholds(golden["block_diffusion"]) if "block_diffusion" in golden else ()),
        *_files(folder, golden),
    ]
    return "\n\n".join(parts) + "\n"


def _text(text: str) -> str:
    """A paragraph, filled."""
    return textwrap.fill(" ".join(text.split()), 110, break_long_words=False, break_on_hyphens=False)


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _opening(name: str, checkpoint: Checkpoint) -> Iterator[str]:
    c = checkpoint.config
    ternary = sum(weight.shape[0] * weight.shape[1] for _, weight in checkpoint.weights.linears())
    yield _text(f"""
        A BitNet b1.58 language model of {ternary / 1e6:.2f} M ternary weights: {KINDS[name]}. It has read one book. It
        is here so that everything offline runs on a model that has learnt something: real activation statistics,
        real confidences, text whose sound a reader recognises. It knows the English of 1611 and little of what the book
        says; nobody should ask it for anything.""")
    yield _text(f"""
        {c.layers} layers, hidden {c.hidden}, FFN {c.inter} with squared ReLU, {c.heads}/{c.kv_heads} heads of
        {c.head_dim}, sub-norms, RoPE theta {c.rope_theta:g}, vocabulary {c.vocab}, tied bf16 head. Hugging Face
        layout: packed uint8 weights, bf16 scales (multiplied), gains and embedding.""")


def _data(corpus: dict[str, Any]) -> Iterator[str]:
    train, held_out = corpus["train"], corpus["held-out"]
    yield "## Data"
    yield _text(f"""
        The King James Bible as Debian's `bible-kjv` (4.38) prints it, references left out: 1,189 chapters, 31,102
        verses. In the public domain (the package states that its copyright has expired). SHA-256 of the printed
        text: `{corpus["sha256"]}`.""")
    yield _text(f"""
        Held out: {corpus["held_out"]}, {held_out["bytes"]:,} bytes in {held_out["tokens"]:,} tokens. Learnt:
        {train["bytes"]:,} bytes in {train["tokens"]:,} tokens. The tokenizer is a byte-level BPE made from the
        chapters that are learnt; `<bos>`, `<eos>`, `<eot>` and `<mask>` are ids 0 to 3, each chapter stands between
        `<bos>` and `<eos>`. The chat template is there for tools that want one; the model has seen no dialogue.""")


def _recipe(run: dict[str, Any]) -> Iterator[str]:
    r = run["recipe"]
    start = f" from the masters of {r['start']}" if r["start"] else ""
    yield "## Recipe"
    yield "    python -m tritgold_xla.training kjv.txt FOLDER     (--help says how to print kjv.txt)"
    yield _text(f"""
        Seed {r["seed"]}; {r["steps"]:,} steps{start}, each of {r["batch"]} sequences of {r["length"]} tokens. Ternary
        from the first step: absmean trits with the scale rounded to bf16, int8 activations by token, gradients straight
        through (arXiv 2402.17764). Matrices by Muon at a peak of {r["peak"]}, embedding and gains by Adam at
        {r["small"]}; warm-up of {r["warmup"]} steps, then the two stages of the BitNet notes ("The Era of 1-bit LLMs:
        Training Tips, Code and FAQ"; arXiv 2504.12285): falling to 8/15 at half time with weight decay {r["decay"]},
        then from 1/3 to 0 without. Positions beyond {r["length"]} were never trained; the context of
        {r["context"]:,} is for measuring.""")
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    yield _text(f"Hardware: {run['machine']}; {run['seconds'] / 60:.0f} minutes. Software: {versions}.")


def _quality(name: str, training: dict[str, Any]) -> Iterator[str]:
    bits = {key: run["held_out_bits_per_byte"][-1][1] for key, run in training.items() if key != "corpus"}
    rows = [
        ("kjv-ar, ternary", bits["kjv-ar"]),
        ("the same network in float32, trained the same way", bits["kjv-ar-float"]),
        ("interpolated 5-gram on the same tokens", training["corpus"]["five_gram_bits_per_byte"]),
    ]
    yield "## Held-out bits per byte"
    yield _table(("", "bits per byte"), [(what, f"{value:.3f}") for what, value in rows])
    ratio = bits["kjv-ar"] / bits["kjv-ar-float"] - 1
    yield _text(f"""
        Ternary against float: {ratio:+.1%}. Windows of 256 tokens that move on by 128; every token is predicted
        once.""")
    if name == "kjv-dlm":
        yield _text(f"""
            kjv-dlm, one token after the other with the rest of its block masked: {bits[name]:.3f}, over an eighth of
            the held-out text in windows without overlap, so that the first block of each has no context.""")


def _curve(run: dict[str, Any]) -> Iterator[str]:
    curve = run["curve"]
    every = -(-len(curve) // CURVE_ROWS)
    bits = ", ".join(f"{value:.3f} after {step}" for step, value in run["held_out_bits_per_byte"])
    yield "## Curve"
    rows = [(step, f"{loss:.3f}") for step, loss in curve[::-1][::every][::-1]]
    yield _table(("step", "training loss, nats a token, mean of the last 25"), rows)
    yield _text(f"Held-out bits per byte: {bits}. All points: `training.json` beside the folder.")


def _zeros(checkpoint: Checkpoint) -> Iterator[str]:
    yield "## Share of zeros"
    rows = []
    for number, layer in enumerate(checkpoint.weights.layers):
        trits = [layer.linear(name).ternary().trits for name in LINEARS]
        rows.append((number, *(f"{float((t == 0).mean()):.3f}" for t in trits)))
    yield _table(("layer", *LINEARS), rows)


def _continuations(golden: dict[str, Any]) -> Iterator[str]:
    yield "## Continuations"
    yield _text(f"""
        Mode {golden["mode"]}; a line break is shown as " / ". Each opening stands in a chapter that was learnt. Token
        ids, hashes of the traces and the statistics of every activation are in `{FILE}`.""")
    for way in sorted({c["block"] for c in golden["continuations"]}, reverse=True):
        rows = [c for c in golden["continuations"] if c["block"] == way]
        yield "Token after token, greedily:" if way == 1 else f"By block diffusion, threshold {rows[0]['threshold']}:"
        yield _table(("opening", "goes on"), [(c["prompt"], c["text"].strip().replace("\n", " / ")) for c in rows])


def _thresholds(measured: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Threshold"
    yield _text(f"""
        The ten openings continued by {DIFFUSED} tokens. Passes include the one that keeps each finished block.
        Agreement is with deciding one token a pass (threshold 1): the share of positions with the same token, and
        the mean number of tokens before the first other one.""")
    rows = []
    for row in measured:
        openings = row["openings"]
        total = {key: sum(opening[key] for opening in openings) for key in ("tokens", "forwards", "same", "of")}
        prefix = sum(opening["prefix"] for opening in openings) / len(openings)
        passes, same = total["forwards"] / total["tokens"], total["same"] / total["of"]
        rows.append((f"{row['threshold']:g}", f"{passes:.2f}", f"{same:.0%}", f"{prefix:.1f}"))
    yield _table(("threshold", "passes a token", "same token", "before the first difference"), rows)


def _files(folder: Path, golden: dict[str, Any]) -> Iterator[str]:
    yield "## Files"
    files = sorted(path for path in folder.iterdir() if path.name != CARD)
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    rows = [(p.name, f"{p.stat().st_size:,}", f"`{digest}`") for p, digest in zip(files, hashes, strict=True)]
    yield _table(("file", "bytes", "SHA-256"), rows)
    yield f"Model hash (what the arithmetic uses): `{golden['model_hash']}`."


def main() -> None:
    """Write the card of every trained model."""
    for name in TRAINED:
        (trained_model(name) / CARD).write_text(model_card(name), encoding="utf-8")


if __name__ == "__main__":
    main()
