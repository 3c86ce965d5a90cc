"""The layouts of a file's linear weights: hypotheses for each kind of tensor, and the decision between them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tritgold.errors import PackingError, TritgoldError
from tritgold.formats.fingerprint import (
    Hypothesis,
    gguf_hypotheses,
    is_float,
    is_open,
    label_of,
    options_of,
    places,
    sglbitnt_hypotheses,
    uint8_hypotheses,
)
from tritgold.formats.fingerprint_group import merged, padding_is_zero
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.layouts import I2S_KEY, Layouts, Tile, tiles_of
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.sglbitnt_file import SglbitntFile
from tritgold_conformance.inspecting.files import Linear, Opened, ReadOptions

_I2_S = {"128": "i2_s block=128", "64": "i2_s block=64", "4rows": "i2_s_4rows"}
_I2_S_OPTIONS = {label: option for option, label in _I2_S.items()}
Shape = tuple[int, int]  # of a matrix: (out, in)
_TILED = ("TL1", "TL2")


@dataclass
class Group:
    """Linear weights of one kind: of one type; for TL1 and TL2 also of one shape, which determines the tile.

    by_tensor: hypotheses by the linear's name. merged: those that hold for all of them. open: the possible layouts
    cannot be listed (custom tiles). layout: the label of the decided layout, None if undecided; by: what decided it:
    ``type``, ``bytes``, ``file``, ``option`` or ``twin``. agreement: with the twin, by label, 0 to 1. contradicted: a
    text, if the twin contradicts file or option.
    """

    dtype: str
    linears: list[Linear]
    by_tensor: dict[str, list[Hypothesis]]
    merged: list[Hypothesis]
    open: bool
    layout: str | None = None
    by: str | None = None
    notes: list[str] = field(default_factory=list)
    agreement: dict[str, float] = field(default_factory=dict)
    contradicted: str | None = None

    @property
    def fitting(self) -> list[str]:
        """The labels of the layouts that fit."""
        return [hypothesis.label for hypothesis in self.merged if hypothesis.fits]

    @property
    def ambiguous(self) -> bool:
        """Whether several layouts fit and nothing decides between them."""
        return self.layout is None and (self.open or len(self.fitting) > 1)

    def packing(self, label: str | None = None) -> Packing | None:
        """The packing of a label. By default that of the decided layout, otherwise the first that fits, or else simply
        the first, because the contents are worth a look even if nothing fits."""
        wanted = label or self.layout or next(iter(self.fitting), None)
        if wanted is None:
            return next((h.layout for h in self.merged if h.layout is not None), None)
        return next(h.layout for h in self.merged if h.label == wanted)

    def shape(self, linear: Linear, label: str) -> Shape | None:
        """(out, in) of a linear weight under a hypothesis; None if the hypothesis does not apply to this tensor."""
        return next((h.shape for h in self.by_tensor[linear.name] if h.label == label), None)

    def as_dict(self) -> dict[str, Any]:
        """For the JSON report."""
        return {
            "dtype": self.dtype,
            "tensors": len(self.linears),
            "shape": list(self.linears[0].stored.shape) if self.dtype in _TILED else None,
            "verdict": "ambiguous" if self.ambiguous else "certain" if self.layout else "nothing fits",
            "layout": self.layout,
            "by": self.by,
            "hypotheses": [self._hypothesis(h) for h in self.merged],
            "contradicted": self.contradicted,
            "notes": self.notes,
            "advice": advice(self),
        }

    def _hypothesis(self, hypothesis: Hypothesis) -> dict[str, Any]:
        layout = hypothesis.layout
        return {
            "layout": hypothesis.label,
            "packing": layout and layout.name,
            "options": {} if layout is None else options_of(layout),
            "verdict": "fits" if hypothesis.fits else "ruled out",
            "reason": hypothesis.reason,
            "agreement": self.agreement.get(hypothesis.label),
        }


def groups(file: Opened, found: list[Linear], asked: ReadOptions, truth: Mapping[str, Shape]) -> list[Group]:
    """The packed linear weights by kind, without floats, with the statements of the file and of the user for each.

    truth: shape of each linear in a twin, by tritgold's name; empty without a twin.
    """
    own = _own_tiles(file)
    tiles = _tiles(file, asked, own)
    where = places(file) if isinstance(file, GgufFile) else {}
    sorted_out: dict[tuple[str, Shape | None], list[Linear]] = {}
    for linear in found:
        dtype, (rows, columns) = linear.stored.dtype, linear.stored.shape
        if (isinstance(file, GgufFile) and not is_float(linear.stored)) or dtype in ("U8", "I8"):
            sorted_out.setdefault((dtype, (rows, columns) if dtype in _TILED else None), []).append(linear)
    made = []
    for (dtype, shape), members in sorted_out.items():
        tile, by = tiles.get(shape, (None, "")) if shape else (None, "")
        said, trouble = (None, None) if tile is None or shape is None else _usable(dtype, shape, tile)
        stated = _usable(dtype, shape, own[shape])[0] if shape in own else None
        # The file's own tile is tried in addition to the option's, so that a twin can decide which of them is right.
        given = None if said is None else [options_of(said)]
        if given and stated is not None and stated != said:
            given.append(options_of(stated))
        by_tensor = {}
        for linear in members:
            stored, lenient = linear.stored, asked.layouts.code3_as_zero
            if isinstance(file, GgufFile):
                by_tensor[linear.name] = gguf_hypotheses(stored, where[stored.name], given, lenient)
            else:
                hypotheses = sglbitnt_hypotheses if isinstance(file, SglbitntFile) else uint8_hypotheses
                by_tensor[linear.name] = hypotheses(stored, linear.shape or truth.get(linear.name), lenient)
        group = Group(dtype, members, by_tensor, merged(by_tensor), is_open(dtype, given))
        group.notes += [trouble] if trouble else []
        if given and len(given) > 1 and stated is not None and shape is not None:
            key = f"tritgold.tile.{shape[0]}x{shape[1]}"
            group.notes.append(f"the file states {label_of(stated)} ({key}); the option overrides it")
        _decide(group, *((label_of(said), by) if said is not None else _said_of_i2_s(group, file, asked)))
        _note(group)
        made.append(group)
    return made


def _own_tiles(file: Opened) -> dict[Shape, Tile]:
    """The tiles that a file written by tritgold states, by shape."""
    with suppress(TritgoldError):  # the error is raised when the model is opened
        return tiles_of(file.metadata, file.path) if isinstance(file, GgufFile) else {}
    return {}


def _tiles(file: Opened, asked: ReadOptions, own: Mapping[Shape, Tile]) -> dict[Shape, tuple[Tile, str]]:
    """The stated tile of each shape, and its source: options override the file, as when a model is opened."""
    said = {shape: (tile, "file") for shape, tile in own.items()}
    if isinstance(file, GgufFile) and asked.layouts.tile:
        shapes = {(t.shape[0], t.shape[1]) for t in file.tensors.values() if t.dtype in _TILED and len(t.shape) == 2}
        said |= dict.fromkeys(shapes, (asked.layouts.tile, "option"))
    return said | {shape: (tile, "option") for shape, tile in asked.layouts.tiles.items()}


def _usable(dtype: str, shape: Shape, tile: Tile) -> tuple[Packing | None, str | None]:
    """The layout with this tile; or None and the reason, if the format does not allow the tile."""
    try:
        return Layouts(tile=tile).packing(dtype, shape), None
    except PackingError as error:
        return None, f"the tile {tile} is not one of {dtype}: {error.expected} expected"


def _said_of_i2_s(group: Group, file: Opened, asked: ReadOptions) -> tuple[str | None, str]:
    """The label that the user or the file states, and which of the two states it."""
    if group.dtype != "I2_S" or not isinstance(file, GgufFile):
        return None, ""
    stated = file.metadata.get(I2S_KEY)
    label = _I2_S.get(stated) if isinstance(stated, str) else None
    if asked.layouts.i2_s is not None:
        if label is not None and stated != asked.layouts.i2_s:
            group.notes.append(f"the file states {stated} ({I2S_KEY}); the option overrides it")
        return _I2_S[asked.layouts.i2_s], "option"
    return label, "file"


def _decide(group: Group, wanted: str | None, by: str) -> None:
    """Choose a layout: a statement of file or option is used, unless the bytes rule it out."""
    fitting = group.fitting
    if wanted in fitting:
        group.layout, group.by = wanted, by
        return
    if wanted is not None:
        group.notes.append(f"the {by} states {wanted}, but the bytes exclude it")
    if len(fitting) == 1 and not group.open:
        group.layout, group.by = fitting[0], "type" if len(group.merged) == 1 else "bytes"


def _note(group: Group) -> None:
    padding = padding_is_zero(linear.stored for linear in group.linears)
    if group.dtype == "I2_S" and padding is True and group.layout is None:
        what = "zeros after every scale, as Python converters write, which only know blocks of 128: a hint, not a proof"
        group.notes.append(what)
    elif padding is False:
        group.notes.append("the bytes after the scales are not zero: written by llama-quantize, on any machine")
    if group.open:
        size = " x ".join(map(str, group.linears[0].stored.shape))
        what = f"unpublished tiles may fit {size} too; {group.dtype} bytes do not contain their tile"
        group.notes.append(what)


def advice(group: Group) -> str | None:
    """How to decide an ambiguous group, or the option that other commands need for a layout that a twin decided."""
    twin = "--twin FILE, the same model in another format"
    if not group.ambiguous:
        return _option(group) if group.by in ("twin", "bytes") and group.layout is not None else None
    if group.dtype == "I2_S":
        return f"--i2s 128, 64 or 4rows, if you know how the file was written; or {twin}"
    if group.dtype in _TILED:
        return f"--tile BM,BK[,bm], or --tile-ini with the kernel_config.ini of the build; or {twin}"
    return f"a config.json with the shapes, or {twin}"


def _option(group: Group) -> str | None:
    layout = group.packing()
    if layout is None:  # a type without trits that shares the number
        return None
    if group.dtype == "I2_S":
        return f"for the other commands: --i2s {_I2_S_OPTIONS[str(group.layout)]}"
    given = options_of(layout)
    if group.dtype in _TILED:
        rows, columns = group.linears[0].stored.shape
        return f"for the other commands: --tile {rows}x{columns}=" + ",".join(str(size) for size in given.values())
    return f"for the other commands: --q2-0-block {given['block']}" if given.get("block") == 128 else None


def decided_layouts(found: list[Group], asked: ReadOptions) -> Layouts:
    """The user's layouts, completed with the layouts that were decided for the file."""
    layouts, tiles = asked.layouts, dict(asked.layouts.tiles)
    for group in found:
        layout = group.packing(group.layout) if group.layout else None
        if layout is None:
            continue
        given = options_of(layout)
        if group.dtype == "I2_S":
            layouts = replace(layouts, i2_s=_I2_S_OPTIONS[label_of(layout)])  # type: ignore[arg-type]
        elif group.dtype == "Q2_0":
            layouts = replace(layouts, q2_0_block=given["block"])
        elif group.dtype in _TILED:
            rows, columns = group.linears[0].stored.shape
            tiles[rows, columns] = given
    return replace(layouts, tiles=tiles)
