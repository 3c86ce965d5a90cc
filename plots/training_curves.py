"""The loss curves of the embedded models, from what the training recorded: docs/images/training-curves.svg."""

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
TRAINING, IMAGE = ROOT / "reference/tritgold/golden/training.json", ROOT / "docs/images/training-curves.svg"
RUNS = {"kjv-ar": "C0", "kjv-ar-float": "C1", "kjv-dlm": "C2"}


def main() -> None:
    """Training loss on the left, held-out bits a byte and the 5-gram on the right."""
    training = json.loads(TRAINING.read_text(encoding="utf-8"))
    mpl.rcParams["svg.hashsalt"] = "tritgold"  # the same picture has the same bytes
    figure, (loss, held_out) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for name, colour in RUNS.items():
        loss.plot(*zip(*training[name]["curve"], strict=True), color=colour, label=name)
        held_out.plot(*zip(*training[name]["held_out_bits_per_byte"], strict=True), "o-", color=colour, label=name)
    held_out.axhline(training["corpus"]["five_gram_bits_per_byte"], color="grey", linestyle="--", label="5-gram")
    loss.set(xlabel="step", ylabel="nats a token", title="Training loss, mean of 25 steps", ylim=(None, 5.5))
    held_out.set(xlabel="step", ylabel="bits a byte", title="Held-out text")
    for axes in (loss, held_out):
        axes.grid(alpha=0.3)
        axes.legend()
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
