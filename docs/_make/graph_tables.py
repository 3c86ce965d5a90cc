"""The tables of docs/judging.md and docs/traces.md that are the graph: operations, and trace names."""

from markdown_tables import table

from tritgold.graph import Operation, Traced, TracedShape, operations, traced_arrays
from tritgold.trace_names import TRACE_NAMES

_PLAIN = TracedShape(layers=1, sub_norms=True)
_SHAPE = TracedShape(layers=1, sub_norms=True, qk_norms=True, post_norms=True)
_WIDTHS = {"q_width": "heads * head_dim", "kv_width": "kv_heads * head_dim"}


def described(array: Traced) -> str:
    """``float32 [tokens, hidden]``, sizes as config.json of the command protocol calls them."""
    return f"{array.dtype} [{', '.join(_WIDTHS.get(axis, axis) for axis in array.axes)}]"


def operation_table() -> str:
    """Operations in execution order, those in one row that read and write the same."""
    rows: dict[tuple[str, str, str], dict[str, None]] = {}
    for operation in (*operations(_PLAIN), *operations(_SHAPE)):
        row = (operation.kind, _roles(operation, "inputs"), _roles(operation, "outputs"))
        rows.setdefault(row, {})[f"`{operation.at.what}`"] = None
    found = ((" ".join(names), kind, reads, writes) for (kind, reads, writes), names in rows.items())
    return table(("operations", "kind", "reads", "writes"), found)


def _roles(operation: Operation, side: str) -> str:
    arrays: dict[str, Traced] = getattr(operation, side)
    return "; ".join(f"{role} {described(array)}" for role, array in arrays.items())


def name_table() -> str:
    """Trace names, their arrays, and where other engines show them."""
    arrays = {name.replace("layers.0.", "layers.{n}."): array for name, array in traced_arrays(_SHAPE).items()}
    rows = (
        (f"`{name}`", described(arrays[name]), *(f"`{x}`" if x else "" for x in (c.llama_cpp, c.hf)), c.note)
        for name, c in TRACE_NAMES.items()
    )
    return table(("ours", "array", "llama.cpp", "transformers", "note"), rows)
