"""The model cards of the trained models: README.md beside each, rendered from what training and golden model recorded.

``python -m measure.model_card`` writes them again; no figure in them is typed by hand.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from measure import card_parts as parts
from measure import skills_card
from measure.card_parts import CARD as CARD
from measure.golden_outputs import FILE
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import TRAINED, trained_model

KINDS = {
    "kjv-ar": "autoregressive",
    "kjv-dlm": "block diffusion, adapted from kjv-ar the Fast-dLLM v2 way",
    "kjv-ar-v2": "autoregressive, kjv-ar trained for 4,140 steps more (runs kjv-ar-longer, -longest, -v2)",
    "kjv-dlm-v2": "block diffusion, adapted from kjv-ar-v2 in 2,800 steps (runs kjv-dlm-longer, -v2)",
}
HEART = {
    "kjv-ar-v2": " It knows ten often quoted verses by heart, and mostly what follows them (Continuations, below).",
    "kjv-dlm-v2": " It knows most of ten often quoted verses by heart (Continuations, below).",
}
COMMAND = "python -m tritgold_xla.training kjv.txt FOLDER     (--help says how to print kjv.txt)"
ABOUT = """It has read one book. It
    is here so that everything offline runs on a model that has learnt something: real activation statistics,
    real confidences, text whose sound a reader recognises. It knows the English of 1611 and little of what the book
    says; nobody should ask it for anything."""


def model_card(name: str) -> str:
    """The card as Markdown."""
    folder = trained_model(name)
    of_text = name in KINDS
    recorded = folder.parent / ("training.json" if of_text else "skills-training.json")
    training = json.loads(recorded.read_text(encoding="utf-8"))
    golden = json.loads((folder / FILE).read_text(encoding="utf-8"))
    checkpoint = open_checkpoint(folder)
    learnt = "Each opening stands in a chapter that was learnt." if of_text else skills_card.LEARNT
    found = [
        *(_card if of_text else skills_card.card)(name, training, checkpoint),
        *parts.zeros(checkpoint),
        *parts.continuations(golden, learnt),
        *(parts.thresholds(golden["block_diffusion"]) if "block_diffusion" in golden else ()),
        *parts.files(folder, golden),
    ]
    return "\n\n".join(found) + "\n"


def _card(name: str, training: dict[str, Any], checkpoint: Checkpoint) -> Iterator[str]:
    """What the models of the text say of themselves, before what every card has."""
    run = training[name]
    bits = ", ".join(f"{value:.3f} after {step}" for step, value in run["held_out_bits_per_byte"])
    yield f"# {name}"
    yield from parts.opening(KINDS[name], ABOUT + HEART.get(name, ""), checkpoint)
    yield from _data(training["corpus"])
    yield from parts.recipe(run, COMMAND)
    yield from _quality(name, training)
    yield from parts.curve(run, f"Held-out bits per byte: {bits}.")


def _data(corpus: dict[str, Any]) -> Iterator[str]:
    train, held_out = corpus["train"], corpus["held-out"]
    yield "## Data"
    yield parts.filled(f"""
        The King James Bible as Debian's `bible-kjv` (4.38) prints it, references left out: 1,189 chapters, 31,102
        verses. In the public domain (the package states that its copyright has expired). SHA-256 of the printed
        text: `{corpus["sha256"]}`.""")
    yield parts.filled(f"""
        Held out: {corpus["held_out"]}, {held_out["bytes"]:,} bytes in {held_out["tokens"]:,} tokens. Learnt:
        {train["bytes"]:,} bytes in {train["tokens"]:,} tokens. The tokenizer is a byte-level BPE made from the
        chapters that are learnt; `<bos>`, `<eos>`, `<eot>` and `<mask>` are ids 0 to 3, each chapter stands between
        `<bos>` and `<eos>`. The chat template is there for tools that want one; the model has seen no dialogue.""")


def _quality(name: str, training: dict[str, Any]) -> Iterator[str]:
    bits = {key: run["held_out_bits_per_byte"][-1][1] for key, run in training.items() if key != "corpus"}
    longer = [("kjv-ar-v2, ternary", bits["kjv-ar-v2"])] if name.endswith("-v2") else []
    rows = [
        ("kjv-ar, ternary", bits["kjv-ar"]),
        ("the same network in float32, trained the same way", bits["kjv-ar-float"]),
        *longer,
        ("interpolated 5-gram on the same tokens", training["corpus"]["five_gram_bits_per_byte"]),
    ]
    yield "## Held-out bits per byte"
    yield parts.table(("", "bits per byte"), [(what, f"{value:.3f}") for what, value in rows])
    ratio = bits["kjv-ar"] / bits["kjv-ar-float"] - 1
    yield parts.filled(f"""
        Ternary against float, kjv-ar: {ratio:+.1%}. Windows of 256 tokens that move on by 128; every token is predicted
        once.""")
    if "dlm" in name:
        yield parts.filled(f"""
            {name}, one token after the other with the rest of its block masked: {bits[name]:.3f}, over an eighth of
            the held-out text in windows without overlap, so that the first block of each has no context.""")


def main() -> None:
    """Write the card of every trained model, or of those that are named."""
    for name in sys.argv[1:] or TRAINED:
        (trained_model(name) / CARD).write_text(model_card(name), encoding="utf-8")


if __name__ == "__main__":
    main()
