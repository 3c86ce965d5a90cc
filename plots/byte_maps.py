"""The byte maps of docs/formats: docs/images/byte-maps/<name>.svg, which weight lies in which bits of which byte.

The data of these pictures is the code itself, so this script imports tritgold where the others read reports: each
map is asked of the packing (``tritgold.formats.packings.byte_map``). The SVG is written by hand, element by element:
a drawing library's bytes change with its version and its fonts, and a test compares these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from pathlib import Path

import numpy as np

from tritgold.formats.packings.byte_map import EXAMPLES, BitField, Weight, byte_map

FOLDER = Path(__file__).parents[1] / "docs/images/byte-maps"

WIDTH, MARGIN = 880, 12
TOP, BOTTOM = (8, 48, 107), (239, 243, 255)  # colours of the most and the least significant weight of a byte
DARK = 0.4  # of the way from one to the other, text is light
SCALE, PADDING = "#fdae6b", "#e0e0e0"
STYLE = (
    "text{font:10px DejaVu Sans,Verdana,Helvetica,Arial,sans-serif;text-anchor:middle}"
    "rect{stroke:#555;stroke-width:.6}.light{fill:#fff}.right{text-anchor:end}.left,.prose,.panel,.title{text-anchor:start}"
    ".prose{font-size:11px}.panel{font-size:12px;font-weight:bold}.title{font-size:15px;font-weight:bold}"
)
GAP = 14  # pixels for what is left out
CELL = 18  # height of a weight


@dataclass(frozen=True)
class Shown:
    """What of an example is drawn.

    bytes_: these, so many to a line. rows, columns: of the weights; () for all. wrap: columns in a line of weights.
    blocks: rows and columns after which the matrix has a narrow gap.
    """

    bytes_: tuple[tuple[range, int], ...]
    rows: tuple[range, ...] = ()
    columns: tuple[range, ...] = ()
    wrap: int = 32
    blocks: tuple[int, int] = (0, 0)


SHOWN = {
    "hf": Shown(((range(24), 8),)),
    "i2_s-128": Shown(((range(32), 8),)),
    "i2_s-64": Shown(((range(32), 8),)),
    "i2_s_4rows": Shown(((range(16), 8),)),
    "sglbitnt": Shown(((range(8), 4), (range(28, 36), 4))),
    "tl1": Shown(
        tuple((range(first, first + 4), 4) for first in (0, 16, 32, 64, 128, 256)),
        rows=(range(2), range(15, 18), range(31, 34), range(63, 64)),
        blocks=(32, 8),
    ),
    "tl2": Shown(
        (
            *((range(first, first + 4), 4) for first in (0, 8, 16, 32, 512)),
            *((range(first, first + 2), 2) for first in (1024, 1026, 1056)),
            *((range(first, first + 4), 4) for first in (1280, 1312)),
        ),
        rows=(range(2), range(7, 9), range(15, 18), range(23, 25), range(31, 32)),
        columns=(range(13), range(96, 99), range(192, 200)),
    ),
    "tq1_0": Shown(((range(4), 4), (range(30, 34), 4), (range(46, 54), 4))),
    "tq2_0": Shown(((range(16), 8), (range(24, 40), 8), (range(56, 66), 8))),
    "q2_0-64": Shown(((range(18), 8),), wrap=16),
    "q2_0-128": Shown(((range(16), 8), (range(24, 34), 8))),
    "q1_0": Shown(((range(8), 4), (range(14, 18), 4))),
    "iq1_bn": Shown(((range(15), 4),), wrap=16),
    "iq2_bn": Shown(((range(20), 8),), wrap=16),
    "iq2_bn_r4": Shown(((range(16), 8), (range(16, 36), 4), (range(76, 80), 4)), wrap=16),
    "gpu_int2": Shown(
        tuple((range(first, first + 4), 4) for first in (0, 4, 32, 64, 96)),
        rows=(range(3), range(7, 10), range(15, 16)),
        blocks=(8, 16),
    ),
    "sequential-lsb": Shown(((range(8), 4),)),
    "sequential-msb": Shown(((range(8), 4),)),
    "torchao": Shown(((range(8), 4),)),
}


def main(images: Path = FOLDER.parent) -> None:
    """Write every picture."""
    folder = images / FOLDER.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        (folder / f"{name}.svg").write_text(svg(name), encoding="utf-8")


def svg(name: str) -> str:
    """The picture of the example called ``name``."""
    drawing = Drawing(name)
    drawing.heading()
    drawing.weights()
    drawing.bytes_in_order()
    drawing.whole()
    return drawing.finished()


@dataclass(frozen=True)
class Slot:
    """The place of a weight, or of several that cannot be told apart, in a byte.

    start, end: bits from the left edge of the byte. order: 0 for the most significant to 1 for the least.
    """

    field: BitField
    weights: tuple[Weight, ...]
    start: float
    end: float
    order: float


def slots(fields: Sequence[BitField]) -> list[Slot]:
    """The slots of one byte. Several weights that share a number divide its width, the one that counts most first."""
    found: list[tuple[BitField, tuple[Weight, ...], float, float]] = []
    for field in fields:
        start, width = 7 - field.bits[0], len(field.bits)
        groups = [(w,) for w in field.weights] if len(field.weights) <= width else [field.weights]
        found += [
            (field, group, start + width * i / len(groups), start + width * (i + 1) / len(groups))
            for i, group in enumerate(groups)
        ]
    return [Slot(*slot, order=start / (8 - end + start)) for slot in found for start, end in [slot[2:]]]


class Drawing:
    """SVG from the top down: ``y`` is where the next panel begins."""

    def __init__(self, name: str) -> None:
        self.name, self.shown = name, SHOWN[name]
        self.layout, self.shape = EXAMPLES[name]
        self.map = byte_map(self.layout, self.shape)
        self.slots = {
            byte: slots(list(fields)) for byte, fields in groupby(self.map.fields, key=lambda field: field.byte)
        }
        self.slot_of: dict[Weight, Slot] = {}
        for slot in chain(*self.slots.values()):
            for weight in slot.weights:
                self.slot_of.setdefault(weight, slot)
        self.y: float = MARGIN
        self.parts: list[str] = []

    def heading(self) -> None:
        """What is shown, what the colours mean, and what the bits say."""
        out, in_ = self.shape
        self.text(MARGIN, self.y + 14, f"{self.name}: {out} x {in_} weights in {self.map.size} bytes", "title")
        self.y += 30
        x: float = MARGIN
        for slot in self.slots[self.map.fields[0].byte]:
            x = self.swatch(x, colour(slot.order), _bits(slot))
        if len(self.slots) + len(self.map.scale) < self.map.size or self.has_idle_bits():
            self.swatch(x, PADDING, "no weight")
        self.y += 22
        kinds: dict[tuple[int, int], BitField] = {}
        for field in self.map.fields:
            kinds.setdefault((len(field.weights), len(field.bits)), field)
        for field in kinds.values():
            self.text(MARGIN, self.y + 10, self.meaning(field), "prose")
            self.y += 16
        self.y += 10

    def swatch(self, x: float, fill: str, text: str) -> float:
        """A colour and what it stands for, on a new line where this one is full; returns where the next one goes."""
        if x > WIDTH - 130:
            x, self.y = MARGIN, self.y + 20
        self.box(x, self.y, 14, 14, fill)
        self.text(x + 18, self.y + 11, text, "left")
        return x + 32 + 6.5 * len(text)

    def has_idle_bits(self) -> bool:
        """Whether a byte with weights has bits that hold none."""
        return any(sum(slot.end - slot.start for slot in here) < 7.9 for here in self.slots.values())

    def meaning(self, field: BitField) -> str:
        """What bits say of their weights, asked of the packing too."""
        width, zeros = len(field.bits), np.zeros(self.shape, np.int8)
        if len(field.weights) == 1:
            trits = (-1, 1) if self.layout.name == "q1_0" else (-1, 0, 1)
            codes = (self.number(field, np.full(self.shape, trit, np.int8)) for trit in trits)
            named = (f"{trit:+d} is {code:0{width}b}" for trit, code in zip(trits, codes, strict=True))
            return f"{self.kind(field.byte)}: " + ", ".join(named).replace("+0", "0")

        def alone(trit: int) -> str:
            found = []
            for weight in field.weights:
                trits = zeros.copy()
                trits[weight] = trit
                found.append(str(self.number(field, trits)))
            return ", ".join(found)

        among = f"a single +1 is {alone(1)} by its place, a single -1 is {alone(-1)}"
        return f"{self.kind(field.byte)}: zeros are {self.number(field, zeros)}, {among}"

    def number(self, field: BitField, trits: np.ndarray) -> int:
        """What stands in the field when these trits are packed."""
        byte = self.layout.pack(trits)[field.byte]
        return (byte >> field.bits[-1]) & ((1 << len(field.bits)) - 1)

    def weights(self) -> None:
        """The matrix, each weight with the number of its byte, in the colour of its bits."""
        self.title("The matrix: in each weight the number of its byte")
        left = MARGIN + 104
        rows, columns = (
            list(chain(*(chosen or (range(size),))))
            for chosen, size in zip((self.shown.rows, self.shown.columns), self.shape, strict=True)
        )
        parts = [columns[i : i + self.shown.wrap] for i in range(0, len(columns), self.shown.wrap)]
        gaps = steps(parts[0], 0, self.shown.blocks[1])[-1]
        width = min(30, (WIDTH - MARGIN - left - gaps) / len(parts[0]))
        places = [left + x for x in steps(parts[0], width, self.shown.blocks[1])]
        if len(parts) == 1:
            self.text(left - 8, self.y + 10, "column", "right")
            for place, column in zip(places, columns, strict=True):
                self.text(place + width / 2, self.y + 10, column)
            self.y += 16
        lines = [(row, part) for row in rows for part in parts]
        heights = steps([row for row, _ in lines], CELL, self.shown.blocks[0])
        for (row, part), height in zip(lines, heights, strict=True):
            y = self.y + height
            label = f"row {row}" if len(parts) == 1 else f"row {row}, {part[0]} to {part[-1]}"
            self.text(left - 8, y + 13, label, "right")
            for place, column in zip(places, part, strict=True):
                slot = self.slot_of[row, column]
                self.box(place, y, width, CELL, colour(slot.order), str(slot.field.byte), slot.order < DARK)
        self.y += heights[-1] + CELL + 18

    def bytes_in_order(self) -> None:
        """The bytes as they follow each other, each weight by row and column."""
        what = "column" if self.shape[0] == 1 else "row, column"
        self.title(f"The bytes, their most significant bit on the left: the weights in them ({what})")
        next_byte = 0
        for shown, per_line in self.shown.bytes_:
            if shown[0] > next_byte:
                self.skipped(next_byte, shown[0] - 1)
            for first in range(shown[0], shown[-1] + 1, per_line):
                self.line_of_bytes(range(first, min(first + per_line, shown[-1] + 1)), per_line)
            next_byte = shown[-1] + 1
        if next_byte < self.map.size:
            self.skipped(next_byte, self.map.size - 1)
        self.y += 12

    def skipped(self, first: int, last: int) -> None:
        """A line for bytes that are not drawn."""
        self.text(MARGIN, self.y + 9, f"... {_bytes(first, last)}", "left")
        self.y += 17

    def line_of_bytes(self, numbers: range, per_line: int) -> None:
        """Some bytes side by side, each under its number."""
        bit = (WIDTH - 2 * MARGIN - 6 * (per_line - 1)) / per_line / 8
        for place, number in enumerate(numbers):
            x = MARGIN + place * (8 * bit + 6)
            self.text(x + 4 * bit, self.y + 9, f"byte {number}")
            y = self.y + 12
            if number not in self.slots:
                is_scale = number in self.map.scale
                self.box(x, y, 8 * bit, 20, SCALE if is_scale else PADDING, "scale" if is_scale else "padding")
                continue
            self.box(x, y, 8 * bit, 20, PADDING)  # bits that hold nothing stay in this colour
            for slot in self.slots[number]:
                width = (slot.end - slot.start) * bit
                self.box(x + slot.start * bit, y, width, 20, colour(slot.order), self.label(slot), slot.order < DARK)
        self.y += 40

    def label(self, slot: Slot) -> str:
        """A weight by its column, with its row in front where there are several rows."""
        columns = [str(column) for _, column in slot.weights]
        shown = columns[0] if len(columns) == 1 else f"{columns[0]}-{columns[-1]}"
        return shown if self.shape[0] == 1 else f"{slot.weights[0][0]},{shown}"

    def whole(self) -> None:
        """All bytes of the packed matrix, not to scale: trits, scale, padding."""
        self.title("All of it, not to scale")
        stretches = [list(group) for _, group in groupby(range(self.map.size), key=self.kind)]
        width = (WIDTH - 2 * MARGIN) / len(stretches)
        for i, stretch in enumerate(stretches):
            kind = self.kind(stretch[0])
            fill = {"scale": SCALE, "padding": PADDING}.get(kind, colour(0.75))
            self.box(MARGIN + i * width, self.y, width, 38, fill)
            middle = MARGIN + (i + 0.5) * width
            self.text(middle, self.y + 15, _bytes(stretch[0], stretch[-1]))
            self.text(middle, self.y + 30, kind)
        self.y += 38 + MARGIN

    def kind(self, byte: int) -> str:
        """What a byte is for, in words."""
        if byte in self.slots:
            ways = {(len(slot.field.weights), len(slot.field.bits)) for slot in self.slots[byte]}
            return ", ".join(f"{_count(n, 'weight')} in {_count(bits, 'bit')}" for n, bits in sorted(ways))
        return "scale" if byte in self.map.scale else "padding"

    def title(self, text: str) -> None:
        """The line above a panel."""
        self.text(MARGIN, self.y + 10, text, "panel")
        self.y += 20

    def text(self, x: float, y: float, text: object, style: str = "") -> None:
        """One line of text, in the middle unless its style, one of STYLE, says otherwise."""
        chosen = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x:.4g}" y="{y:.4g}"{chosen}>{text}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, text: str = "", light: bool = False
    ) -> None:
        """A rectangle, with text in its middle; light text on a dark ground."""
        place = f'x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"'
        self.parts.append(f'<rect {place} fill="{fill}"/>')
        if text:
            self.text(x + width / 2, y + height / 2 + 3.5, text, "light" if light else "")

    def finished(self) -> str:
        """The document."""
        size = f'width="{WIDTH}" height="{self.y:.0f}" viewBox="0 0 {WIDTH} {self.y:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        title = f"<title>Byte map of {self.name}</title>\n<style>{STYLE}</style>"
        ground = f'<path d="M0 0H{WIDTH}V{self.y:.0f}H0z" fill="#fff"/>'
        return "\n".join([head, title, ground, *self.parts, "</svg>", ""])


def steps(indices: Sequence[int], size: float, block: int) -> list[float]:
    """Where each index is drawn: one after the other, with a gap where some are left out or a block ends."""
    places = [0.0]
    for before, index in pairwise(indices):
        skipped = index not in (before, before + 1)
        ends = bool(block) and index // block != before // block
        places.append(places[-1] + size + (GAP if skipped else 4 if ends else 0))
    return places


def colour(order: float) -> str:
    """From dark to light, so that the picture can be read without seeing hues."""
    return "#" + "".join(f"{round(a + (b - a) * order):02x}" for a, b in zip(TOP, BOTTOM, strict=True))


def _bits(slot: Slot) -> str:
    bits, weights = slot.field.bits, slot.field.weights
    shown = f"bit {bits[0]}" if len(bits) == 1 else f"bits {bits[0]}-{bits[-1]}"
    return shown if len(weights) == 1 else f"{shown}, weight {weights.index(slot.weights[0]) + 1}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _bytes(first: int, last: int) -> str:
    return f"byte {first}" if first == last else f"bytes {first} to {last}"


if __name__ == "__main__":
    main()
