"""Translates names of transformers' modules to trace names."""

import re

from tritgold.trace_names import TRACE_NAMES


def _table() -> dict[str, str]:
    """transformers' name -> trace name, for outputs of modules and for codes and scales of their inputs."""
    names = {}
    for ours, theirs in TRACE_NAMES.items():
        module, _, side = theirs.hf.partition(" ")
        what = ours.rpartition(".")[2]
        if what in ("codes", "scale"):
            names[f"{module}.{what}"] = ours
        elif side == "output" and what != "probs":  # probs are the module's second output, which no hook records
            names[f"{module}.output"] = ours
    return names


_OURS = _table()


def our_name(name: str) -> str:
    """The trace name for a name of ``peer_program.Recorder``. Raises KeyError for an unknown name.

    >>> our_name("model.layers.12.mlp.down_proj.codes"), our_name("model.norm.output")
    ('layers.12.down_in.codes', 'final_norm')
    """
    pattern, layer = _pattern(name)
    return _OURS[pattern].replace("{n}", layer)


def is_recorded(ours: str) -> bool:
    """Whether ``peer_program.Recorder`` records the array of this trace name."""
    return _pattern(ours)[0] in _OURS.values()


def _pattern(name: str) -> tuple[str, str]:
    """``layers.12.x`` -> (``layers.{n}.x``, ``12``)."""
    found = re.search(r"(?<=layers\.)\d+", name)
    return (name, "") if found is None else (name[: found.start()] + "{n}" + name[found.end() :], found[0])
