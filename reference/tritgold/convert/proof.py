"""The proof: open the written file with the ordinary readers and compare it with what was to be written.

Compared are names, types and sizes; every metadata key; trits, scales and gains bit for bit; embedding and head, after
the requested rounding; every field of the configuration; tokenizer and chat template byte for byte.
"""

from dataclasses import fields

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.convert.floats import rounded, row_slices, same_bits
from tritgold.convert.plan import Plan
from tritgold.convert.wanted import Wanted
from tritgold.errors import ConversionError
from tritgold.formats.container import StoredTensor
from tritgold.weights import VECTORS


def prove(wanted: Wanted, plan: Plan, written: Checkpoint) -> None:
    """Compare the opened result with the plan and the source. written: must be opened without layout options.

    Scales are compared with the plan's, which differ from ``wanted`` only by requested rounding. Raises
    ConversionError ``not-equal`` with the first difference.
    """
    _tensors(plan, written)
    if (thing := plan.differs(written)) is not None:
        _differs(thing, "as planned", "something else")
    _config(wanted, written)
    if wanted.source.tokenizer_json() != written.tokenizer_json():
        _differs("the tokenizer", "text", "another text")
    if wanted.source.chat_template() != written.chat_template():
        _differs("the chat template", "text", "another text")
    for name, weight in written.weights.linears():
        expected, found = wanted.linear(name), weight.ternary()
        if not np.array_equal(expected.trits, found.trits):
            row, column = np.argwhere(expected.trits != found.trits)[0].tolist()
            _differs(f"{name}: trit [{row}, {column}]", expected.trits[row, column], found.trits[row, column])
        scale, stored = np.asarray(plan.scales[name], np.float32), found.scale
        heard = expected.trits.any(axis=1)  # the scale of an all-zero row is not stored
        both = (np.broadcast_to(each.reshape(-1), heard.shape)[heard] for each in (scale, stored))
        if not same_bits(*map(np.ascontiguousarray, both)):
            _differs(f"{name}: scale", scale, stored)
    _gains(wanted, written)
    for name in ("embedding", "head"):
        _matrix(name, getattr(wanted.source.weights, name), getattr(written.weights, name))


def _tensors(plan: Plan, written: Checkpoint) -> None:
    """Names, types, shapes and sizes of all tensors are as planned."""
    planned = {t.name: (t.dtype, t.shape, t.size) for t in plan.tensors}
    found = {t.name: (t.dtype, t.shape, t.data.size) for t in written.container.tensors.values()}
    for name in {**planned, **found}:
        if planned.get(name) != found.get(name):
            _differs(f"tensor {name!r}", planned.get(name), found.get(name))


def _config(wanted: Wanted, written: Checkpoint) -> None:
    for field in fields(wanted.config):
        value, found = (getattr(config, field.name) for config in (wanted.config, written.config))
        if value != found:
            _differs(f"configuration: {field.name}", value, found)


def _gains(wanted: Wanted, written: Checkpoint) -> None:
    source = wanted.source.weights
    pairs = [("final_norm", source.final_norm, written.weights.final_norm)]
    for index, (ours, theirs) in enumerate(zip(source.layers, written.weights.layers, strict=True)):
        pairs += [(f"layers.{index}.{norm}", getattr(ours, norm), getattr(theirs, norm)) for norm in VECTORS]
    for name, expected, found in pairs:
        if (expected is None) is not (found is None) or (expected is not None and not same_bits(expected, found)):
            _differs(name, "the source's gains", "others")


def _matrix(name: str, source: StoredTensor | None, written: StoredTensor | None) -> None:
    if source is None or written is None:
        if source is not written:
            _differs(name, source and source.shape, written and written.shape)
        return
    for rows in row_slices(source):
        if source.dtype == written.dtype:
            first, second = (t.data.reshape(t.shape[0], -1)[rows] for t in (source, written))
            same = np.array_equal(first, second)
        else:
            same = same_bits(rounded(source.rows(rows), written.dtype), written.rows(rows))
        if not same:
            _differs(f"{name}: rows from {rows.start}", "the source's values", "others")
        written.release()


def _differs(thing: str, expected: object, found: object) -> None:
    raise ConversionError(
        "what was written is not what was read",
        kind="not-equal",
        thing=thing,
        got=found,
        expected=expected,
        hint="this is a bug in tritgold or a failing disk: nothing was kept of the result",
    )
