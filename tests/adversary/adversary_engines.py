"""The engines by name, for ``tritgold check --engine adversary_engines:NAME`` in this folder."""

from registry import all_entries


def __getattr__(name: str) -> type:
    entries = all_entries()
    if name not in entries:
        raise AttributeError(f"no such engine: {name}")
    return entries[name].engine
