"""Loss curves of the embedded models and of trials, as the training recorded them: docs/images/training-curves.svg."""

from pathlib import Path

from drawing import COLOURS, IMAGES, MARKERS, ROOT, begin, caption, read, save

SOURCE = ROOT / "reference/tritgold/golden/training.json"


def main(images: Path = IMAGES) -> None:
    """Training loss above, held-out bits a byte and the 5-gram below."""
    training = read(SOURCE)
    runs = {name: run for name, run in training.items() if "curve" in run}
    figure, (loss, held_out) = begin(2, 2.8, 0.3)
    for number, (name, run) in enumerate(runs.items()):
        colour, marker = COLOURS[number], MARKERS[number]
        loss.plot(*zip(*run["curve"], strict=True), color=colour, linestyle=("-", "--", ":")[number % 3])
        held_out.plot(*zip(*run["held_out_bits_per_byte"], strict=True), marker + "-", color=colour, label=name)
    five_gram = training["corpus"]["five_gram_bits_per_byte"]
    held_out.axhline(five_gram, color=COLOURS[-2], linestyle="--", label="5-gram")
    loss.set(xlabel="training step", ylabel="nats a token", title="Training loss, mean of 25 steps", ylim=(None, 7.2))
    held_out.set(xlabel="training step", ylabel="bits a byte", title="Held-out text")
    for axes in (loss, held_out):
        axes.grid()
    machine = "; ".join(dict.fromkeys(f"{run['machine']}, JAX {run['versions']['jax']}" for run in runs.values()))
    text = "The King James Bible, read by each model. The loss of kjv-dlm-v2 is the sum of two."
    said = caption(text, machine, [SOURCE])
    save(figure, images / "training-curves.svg", said, held_out.get_legend_handles_labels()[0], 4)


if __name__ == "__main__":
    main()
