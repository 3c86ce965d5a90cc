"""What transformers' modules show, under our trace names."""

import re
from collections.abc import Iterable, Mapping

from tritgold.trace_names import TRACE_NAMES


def _table() -> dict[str, str]:
    """transformers' name -> ours, for the outputs of modules and what a quantiser makes of their inputs."""
    names = {}
    for ours, theirs in TRACE_NAMES.items():
        module, _, side = theirs.hf.partition(" ")
        what = ours.rpartition(".")[2]
        if what in ("codes", "scale"):
            names[f"{module}.{what}"] = ours
        elif side == "output" and what != "probs":  # the module's second output, which no hook records
            names[f"{module}.output"] = ours
    return names


_OURS = _table()


# Gemma 3 norms what attention gives, and calls that norm as others call the one before the FFN.
_GEMMA = {
    "model.layers.{n}.post_attention_layernorm.output": "layers.{n}.attn_post_norm",
    "model.layers.{n}.pre_feedforward_layernorm.output": "layers.{n}.ffn_norm",
}


def our_names(names: Iterable[str]) -> dict[str, str]:
    """The trace names of what ``peer_program.Recorder`` calls so. Raises KeyError for what the table does not know."""
    names = list(names)
    table = {**_OURS, **_GEMMA} if any("pre_feedforward_layernorm" in name for name in names) else _OURS
    return {name: our_name(name, table) for name in names}


def our_name(name: str, table: Mapping[str, str] | None = None) -> str:
    """One of them, by the table of all but Gemma.

    >>> our_name("model.layers.12.mlp.down_proj.codes"), our_name("model.norm.output")
    ('layers.12.down_in.codes', 'final_norm')
    """
    pattern, layer = _pattern(name)
    return (table or _OURS)[pattern].replace("{n}", layer)


def is_recorded(ours: str) -> bool:
    """Whether a trace name of ours is among them."""
    return _pattern(ours)[0] in (*_OURS.values(), *_GEMMA.values())


def _pattern(name: str) -> tuple[str, str]:
    """``layers.12.x`` -> (``layers.{n}.x``, ``12``)."""
    found = re.search(r"(?<=layers\.)\d+", name)
    return (name, "") if found is None else (name[: found.start()] + "{n}" + name[found.end() :], found[0])
