"""Draws docs/images/block-diffusion-strip.svg, the block of docs/learn/block-diffusion.md, pass by pass.

``python plots block_diffusion_strip`` decodes and draws. The decoding is the plain loop of that page, the whole
block read again in each pass; a test holds it to tritgold's engine. The golden arithmetic is the same bits everywhere,
and so is the picture.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import embedded_model
from tritgold.model import forward
from tritgold.portable_math import exp, pairwise_sum
from tritgold.tokenizer import Tokenizer

IMAGES, NAME = Path(__file__).parents[1] / "docs" / "images", "block-diffusion-strip.svg"
PROMPT, THRESHOLD, BLOCK, SUB_BLOCK = "In the beginning God created", 0.15, 32, 8

LEFT, TOP, CELL, HEIGHT, STEP = 66, 84, 42, 26, 36  # pixels
MASKED, SURE, OLD, NEW, INK = "#e4e4e4", "#e69f00", "#cfe3f2", "#08519c", "#222"
STYLE = (
    "text{font:11px DejaVu Sans,Verdana,Helvetica,Arial,sans-serif;text-anchor:middle;fill:#222}"
    ".left{text-anchor:start}.title{text-anchor:start;font-size:15px;font-weight:bold}.light{fill:#fff;font-weight:bold}"
    ".small{font-size:9px}"
)


@dataclass(frozen=True)
class Frame:
    """One pass. sub_block: number of the one that it decides. seen: the prediction and its probability of each position
    that is masked in it. decided: positions that become tokens now. text: the ids after the pass, -1 for a mask.
    """

    sub_block: int
    seen: dict[int, tuple[int, float]]
    decided: tuple[int, ...]
    text: tuple[int, ...]


def frames() -> tuple[list[int], list[Frame], Tokenizer, str]:
    """The prompt's ids, the passes of the first block, the tokenizer, and the hash of the model."""
    with embedded_model("kjv-dlm") as path:
        model = open_checkpoint(path)
        tokenizer = Tokenizer(path / "tokenizer.json")
        mask = model.config.mask
        assert mask is not None
        prompt = tokenizer.encode(PROMPT)
        text = prompt + [mask] * (BLOCK - len(prompt))
        found: list[Frame] = []
        for first in range(0, BLOCK, SUB_BLOCK):
            while masked := [i for i in range(first, first + SUB_BLOCK) if text[i] == mask]:
                logits = forward(text, model.weights, model.config, block=BLOCK).astype(np.float64)
                logits[:, mask] = -np.inf
                rows = logits[[i - 1 for i in masked]]
                powers = exp(rows - np.max(rows, axis=1, keepdims=True))
                sure = np.max(powers, axis=1) / pairwise_sum(powers)
                best = np.argmax(rows, axis=1)
                seen = {i: (int(token), float(p)) for i, token, p in zip(masked, best, sure, strict=True)}
                surest = masked[int(np.argmax(sure))]
                decided = tuple(i for i in masked if seen[i][1] > THRESHOLD or i == surest)
                for i in decided:
                    text[i] = seen[i][0]
                shown = tuple(-1 if token == mask else token for token in text)
                found.append(Frame(first // SUB_BLOCK, seen, decided, shown))
        return prompt, found, tokenizer, model.model_hash()


def svg() -> str:
    """The picture."""
    prompt, passes, tokenizer, model_hash = frames()
    start = len(prompt)
    width, height = LEFT + (BLOCK - start) * CELL + 16, TOP + len(passes) * STEP + 30
    parts: list[str] = []

    def text(x: float, y: float, what: str, style: str = "") -> None:
        parts.append(f'<text x="{x:g}" y="{y:g}"' + (f' class="{style}"' if style else "") + f">{escape(what)}</text>")

    def box(x: float, y: float, w: float, h: float, fill: str, edge: str = "none") -> None:
        parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}" stroke="{edge}"/>')

    text(12, 22, f'kjv-dlm after "{PROMPT}", threshold {THRESHOLD}: {len(passes)} passes', "title")
    x = 12.0
    for fill, edge, meaning in (
        (MASKED, "none", "mask, not asked"),
        ("#fff", INK, "mask of the sub-block in turn, its probability as a bar"),
        (NEW, "none", "decided in this pass, with its probability"),
        (OLD, "none", "decided before"),
    ):
        box(x, 34, 14, 14, fill, edge)
        text(x + 20, 45, meaning, "left")
        x += 46 + 6.4 * len(meaning)
    for i in range(start, BLOCK):
        text(LEFT + (i - start + 0.5) * CELL, TOP - 10, str(i), "small")
    text(12, TOP - 10, "position", "left small")
    for number, frame in enumerate(passes):
        y = TOP + number * STEP
        text(12, y + 17, f"pass {number + 1}", "left")
        for i in range(start, BLOCK):
            left = LEFT + (i - start) * CELL + 1
            word = tokenizer.decode([frame.text[i]]).strip() or "\u21b5" if frame.text[i] >= 0 else ""
            middle = left + (CELL - 2) / 2
            if i in frame.decided:
                box(left, y, CELL - 2, HEIGHT, NEW)
                text(middle, y + 12, word, "light")
                text(middle, y + 23, f"{frame.seen[i][1]:.2f}", "light small")
            elif frame.text[i] >= 0:
                box(left, y, CELL - 2, HEIGHT, OLD)
                text(middle, y + 17, word)
            elif i in frame.seen:
                box(left, y, CELL - 2, HEIGHT, "#fff", INK)
                box(left + 1, y + HEIGHT - 7, (CELL - 4) * frame.seen[i][1], 6, SURE)
                text(middle, y + 14, f"{frame.seen[i][1]:.2f}", "small")
            else:
                box(left, y, CELL - 2, HEIGHT, MASKED)
    bounds = [i for i in range(start, BLOCK + 1) if i % SUB_BLOCK == 0]
    bottom = TOP + len(passes) * STEP - 4
    for i in bounds:
        line = LEFT + (i - start) * CELL
        parts.append(f'<path d="M{line} {TOP - 6}V{bottom}" stroke="{INK}" stroke-dasharray="3 3"/>')
    text(12, height - 10, f"model {model_hash[:12]}, golden arithmetic: the same on every machine", "left small")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    title = f"<title>A block of kjv-dlm decoded in {len(passes)} passes</title>\n<style>{STYLE}</style>"
    ground = f'<path d="M0 0H{width}V{height}H0z" fill="#fff"/>'
    return "\n".join([f'{head} role="img">', title, ground, *parts, "</svg>", ""])


def main(images: Path = IMAGES) -> None:
    """Write the picture."""
    (images / NAME).write_text(svg(), encoding="utf-8")
