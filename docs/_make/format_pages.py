"""The pages of docs/formats that say what the code says: one a packing, one of the dense types, and a comparison.

``python docs/_make/format_pages.py`` writes them; ``make formats`` the pictures too. A page is the docstrings of its
class and module, and figures found by packing matrices; a test makes them again and compares. What no code knows (who
reads what, which mistakes are made) stands in docs/formats/engines.md, written by hand.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from docstrings import joined, markdown, prose

from tritgold.errors import PackingError
from tritgold.formats import dense_blocks
from tritgold.formats.dense_blocks import DENSE_BLOCKS
from tritgold.formats.ggml_types import block_weights, tensor_bytes, type_number
from tritgold.formats.layouts import GGUF_TERNARY, Layouts
from tritgold.formats.packings import PACKINGS, packing
from tritgold.formats.packings.byte_map import EXAMPLES, byte_map
from tritgold.formats.packings.packing_base import Packing

FOLDER = Path(__file__).parents[1] / "formats"
INDEX = "README.md"

SHAPE = (640, 2560)  # k_proj of BitNet b1.58 2B-4T: every format can hold it
TILES = {"tl1": {"BM": 160, "BK": 64, "bm": 32}, "tl2": {"BM": 160, "BK": 96}}
FLOATS = {name: (packing(name), (2, 16)) for name in ("f32", "f16", "bf16")}
SHOWN = EXAMPLES | FLOATS  # a line of the comparison each

MADE = "<!-- Made by docs/_make/format_pages.py (make formats): a change by hand is lost, and fails a test before. -->"

OPENING = """\
A ternary weight is a **trit**, -1, 0 or +1, times a **scale** that it shares with its tensor or block. The trits of a
matrix [out, in] lie several to a byte, and every format has an order of its own. Bytes read in a wrong order load
without complaint: each value is a trit, histograms and often row sums are right, and the model babbles. So each format
has a page here with its byte map, and a class that packs and unpacks:

```python
import numpy as np

from tritgold.formats.packings import packing

layout = packing("i2_s", block=64)
trits, scale = np.ones((4, 128), np.int8), 0.5
data = layout.pack(trits, scale)  # int8 [out, in] and a float -> bytes
tensor = layout.unpack(data, trits.shape)  # trits and scale again; PackingError for codes that are not trits
byte = layout.byte_of(3, 100, trits.shape)  # which byte holds the weight in row 3, column 100
```

Words: the *payload* are the bytes that hold trits; a *code* is the number that the bits of a weight make; a *trailer*
follows the payload of a tensor. Bit 7 is the most significant and stands on the left. Numbers are little-endian.

The files around these bytes: [GGUF](container-gguf.md), [safetensors](container-safetensors.md),
[SGLBITNT](container-sglbitnt.md). Embedding, head and whatever else is not a ternary weight may lie in one of the
[dense types](dense.md). Which program reads what, and what it gets wrong: [engines](engines.md)."""

DENSE = """\
What llama-quantize leaves around a TQ1_0 or TQ2_0 body: `token_embd` in Q4_K, `output` in Q6_K. They are read as
float32 by the formulas below, each product and difference a single float32 operation in ggml's order, and a test
compares every type with `gguf.quants` bit for bit on random bytes. Conversion to GGUF keeps them byte for byte;
`--embedding f32` writes their values. No ternary weight is read from them: a linear in Q8_0 is refused by name. Numbers
are little-endian; a *group* is a stretch of consecutive weights with a scale of its own."""

LEGEND = f"""\
- *GGUF*: number of the tensor type; [some mean two things](container-gguf.md).
- *Bits a weight*: of a matrix of {SHAPE[0]} x {SHAPE[1]}, scales and padding included.
- *Scale*: inside the packed bytes, one a tensor or one a block, or stored elsewhere.
- *Byte 0*: the weights of the first byte that holds any, its top bits first, as row,column in the picture's matrix.
- *All 0*, *all -1*: the bytes in the payload of such a matrix. In hf, rows that fill up the last quarter are code 0.
- *Zero bytes*: what a payload of zero bytes is read as; holes in files and forgotten buffers give such bytes."""


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Every page by file name."""
    return {INDEX: index(), "dense.md": dense(), **{f"{name}.md": page(name) for name in PACKINGS}}


def dense() -> str:
    """The types of embedding, head and kept layers, in one page."""
    rows = [("type", "GGUF", "weights a block", "bytes a block", "bits a weight"), *map(dense_row, DENSE_BLOCKS)]
    layouts = ((f"## {name}", *markdown(function)) for name, function in DENSE_BLOCKS.items())
    source = "[`dense_blocks.py`](../../reference/tritgold/formats/dense_blocks.py)"
    return joined(
        "# Dense types",
        MADE,
        f"[All formats](README.md), [engines](engines.md), the code: {source}",
        *markdown(dense_blocks),
        DENSE,
        table(rows),
        *(paragraph for section in layouts for paragraph in section),
    )


def dense_row(name: str) -> tuple[str, ...]:
    """A line of the table."""
    weights = block_weights(name)
    size = tensor_bytes(name, (1, weights)) or 0
    return name, str(type_number(name, "llama")), str(weights), str(size), f"{8 * size / weights:.6g}"


def index() -> str:
    """The comparison of all formats."""
    head = ("format", "GGUF", "bits a weight", "scale", "byte 0", "all 0", "all -1", "zero bytes")
    rows = [head, *(compared(example) for example in SHOWN)]
    return joined("# Formats", MADE, OPENING, "## Compared", table(rows), LEGEND)


def compared(example: str) -> tuple[str, ...]:
    """A line of the comparison."""
    layout, shape = SHOWN[example]
    scale = layout.scales(layout.pack(trits(layout, shape)), shape)
    place = ("a block" if scale.ndim else "a tensor") if layout.stores_scale else "elsewhere"
    return (
        f"[{example}]({layout.name}.md)",
        gguf_type(layout.name).split(" ")[0],
        bits(layout),
        place,
        first_byte(example),
        payload_of(example, 0),
        payload_of(example, -1),
        zero_bytes(example),
    )


def page(name: str) -> str:
    """What the code says of one packing."""
    layout = PACKINGS[name]
    module = sys.modules[layout.__module__]
    source = f"[`{layout.__name__}`](../../reference/{layout.__module__.replace('.', '/')}.py)"
    inherited = [base for base in layout.__mro__[1:] if issubclass(base, Packing) and base is not Packing]
    examples = [example for example, (its, _) in SHOWN.items() if its.name == name]
    return joined(
        f"# {name}",
        MADE,
        f"[All formats](README.md), [engines](engines.md), the code: {source}",
        *markdown(module),
        "## Layout",
        *(paragraph for part in (layout, *inherited) for paragraph in markdown(part)),
        *(["## Byte map"] if name not in FLOATS else []),
        *(f"![byte map of {e}](../images/byte-maps/{e}.svg)" for e in examples if e in EXAMPLES),
        "## In short",
        table([("", ", ".join(examples)), *in_short(layout, examples)]),
    )


def in_short(layout: type[Packing], examples: list[str]) -> Iterator[tuple[str, str]]:
    """Lines of the table at the end of a page; several values stand for several examples, in their order."""
    yield "options", options(layout)
    yield "GGUF type", gguf_type(layout.name)
    yield "bytes, and the shapes it holds", prose(layout.packed_size)
    yield f"bits a weight, {SHAPE[0]} x {SHAPE[1]}", several(bits(SHOWN[e][0]) for e in examples)
    yield "the byte of a weight (`byte_of`)", prose(layout.byte_of)
    yield "scale", prose(layout.scales) if layout.stores_scale else "stored elsewhere; `unpack` gives 1"
    if layout.name not in FLOATS:
        yield "not a trit", several(map(no_trit, examples))
    if layout.odd_bytes is not Packing.odd_bytes:
        yield "legal, yet odd (`odd_bytes`)", prose(layout.odd_bytes)
    yield "payload of a matrix of 0", several(payload_of(e, 0) for e in examples)
    yield "payload of a matrix of -1", several(payload_of(e, -1) for e in examples)
    yield "payload of zero bytes is read as", several(map(zero_bytes, examples))


def trits(layout: Packing, shape: tuple[int, int]) -> np.ndarray:
    """A matrix without symmetry, int8: -1, 0, +1, or without 0 where the format has none."""
    codes = np.random.default_rng(0).integers(0, 3, shape, np.int8)
    return np.where(codes == 1, 1, codes - 1).astype(np.int8) if layout.name == "q1_0" else codes - np.int8(1)


def bits(layout: Packing) -> str:
    """Bits a weight of a matrix of the size of a real one."""
    real = packing(layout.name, **TILES[layout.name]) if layout.name in TILES else layout
    return f"{8 * len(real.pack(trits(real, SHAPE))) / (SHAPE[0] * SHAPE[1]):.6g}"


def first_byte(example: str) -> str:
    """The weights in the first byte that holds any, the most significant first."""
    if example in FLOATS:
        return "a part of 0,0"
    fields = byte_map(*EXAMPLES[example]).fields
    return " ".join(f"{row},{column}" for f in fields if f.byte == fields[0].byte for row, column in f.weights)


def payload_of(example: str, trit: int) -> str:
    """The byte values, hexadecimal, of a payload whose weights are all the same."""
    layout, shape = SHOWN[example]
    payload = layout.payload(layout.pack(np.full(shape, trit, np.int8)), shape)
    return " ".join(f"{byte:02x}" for byte in dict.fromkeys(payload.reshape(-1).tolist()))


def zero_bytes(example: str) -> str:
    """The trits as which a payload of zero bytes is read, or that it is refused."""
    layout, shape = SHOWN[example]
    try:
        found = layout.unpack(filled(example, 0), shape, warn=False).trits
    except PackingError:
        return "refused"
    return " and ".join(map(str, np.unique(found).tolist()))


def no_trit(example: str) -> str:
    """What is refused, and how many of the 256 bytes have it."""
    layout, shape = SHOWN[example]
    refused = 0
    for byte in range(256):
        try:
            layout.check(filled(example, byte), shape)
        except PackingError:
            refused += 1
    return f"{layout.invalid_code}, in {refused} of 256 bytes; error `{layout.invalid_kind}`" if refused else "nothing"


def filled(example: str, byte: int) -> np.ndarray:
    """A packed matrix of the example, every byte of its payload set."""
    layout, shape = SHOWN[example]
    data = np.frombuffer(layout.pack(trits(layout, shape)), np.uint8).copy()
    layout.payload(data, shape)[...] = byte
    return data


def gguf_type(name: str) -> str:
    """Number and name of the tensor type that has this layout."""
    for dtype in GGUF_TERNARY:
        for i2_s in ("128", "4rows"):
            if Layouts(i2_s=i2_s, tile=TILES.get(dtype.lower())).packing(dtype, SHAPE).name == name:
                return f"{type_number(dtype, 'bitnet-b1.58')} ({dtype})"
    return "none"


def options(layout: type[Packing]) -> str:
    """The options of a packing and their defaults."""
    found = inspect.signature(layout).parameters.values()
    shown = (f"`{o.name}`" + ("" if o.default is o.empty else f" = {o.default}") for o in found)
    return ", ".join(shown) or "none"


def several(values: Iterable[str]) -> str:
    """One value where all are equal."""
    return "; ".join(dict.fromkeys(values))


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table, its head first."""
    head, *rest = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rest))


if __name__ == "__main__":
    main()
