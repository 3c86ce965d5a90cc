"""The list of all entries: what each engine is, what should become of it, and where no input can show it, why."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
GROUPS = ("faulty", "right", "cheats")


@dataclass(frozen=True)
class Entry:
    """One engine.

    kind: of the fault, or the group. unseen: why no input can show it; then exit code 0 is expected. model: the name
    of the checkpoint that it needs. options: more of the command line. files: files of the working folder, by name.
    """

    name: str
    group: str
    kind: str
    what: str
    engine: type
    unseen: str = ""
    model: str = "seeded"
    options: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """conforms, or not: an engine that differs from the golden one must never get exit code 0."""
        return "conforms" if self.group == "right" or self.unseen else "does not conform"


ENTRIES: dict[str, Entry] = {}


def _add(group: str, kind: str, what: str, **more: object) -> Callable[[type], type]:
    def register(engine: type) -> type:
        name = engine.__name__
        if name in ENTRIES:
            raise ValueError(f"two entries are called {name}")
        ENTRIES[name] = Entry(name, group, kind, what, engine, **more)
        return engine

    return register


def faulty(kind: str, what: str, **more: object) -> Callable[[type], type]:
    return _add("faulty", kind, what, **more)


def right(what: str, kind: str = "right", **more: object) -> Callable[[type], type]:
    return _add("right", kind, what, **more)


def cheat(what: str, kind: str = "cheat", **more: object) -> Callable[[type], type]:
    return _add("cheats", kind, what, **more)


def made(name: str, *bases: type, **methods: object) -> type:
    """A class of this name; for entries that differ in a number or a condition alone."""
    return type(name, bases, methods)


def all_entries() -> dict[str, Entry]:
    """Every entry by name, in the order of groups and files."""
    for group in GROUPS:
        for file in sorted((FOLDER / group).glob("*.py")):
            importlib.import_module(f"{group}.{file.stem}")
    return ENTRIES
