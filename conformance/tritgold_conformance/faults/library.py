"""The registry: ``known_fault`` makes a Fault of a function and its docstring, ``collect`` finds those of a package.

A docstring is the fault's page: its first line says what is wrong, then follow what it looks like, and public reports,
separated by semicolons. Notes may follow::

    Sums are kept in int16 and wrap.

    Looks like: right on random rows; same-sign rows come out with another sign
    Seen in: microsoft/BitNet #411, #459; another/engine #1
"""

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tritgold.errors import EngineError
from tritgold_conformance.faults.fault import AREAS, INVISIBLE, Fault, Mutation, Witness

_SECTION = re.compile(r"^(Looks like|Seen in): (.*(?:\n +.*)*)", re.MULTILINE)


def known_fault(
    shown_by: Witness,
    made_with: Callable[[Callable[..., Any]], Mutation] | None = None,
    *,
    invisible_on: tuple[str, ...] = (),
    harmless: bool = False,
) -> Callable[[Callable[..., Any]], Fault]:
    """Decorator for a change of the golden model.

    made_with: turns the function into a change, if it is not one; ``mutate`` has several. The fault's name is that of
    the function, with hyphens; its area is the module's ``AREA``, or the module's name. Raises EngineError:
    ``bad-fault`` for an unknown area or key of INVISIBLE, or a docstring without a required section;
    ``duplicate-fault`` if the module already has a fault of this name.
    """

    def declared(function: Callable[..., Any]) -> Fault:
        change: Mutation = function if made_with is None else made_with(function)
        name, module = function.__name__.replace("_", "-"), function.__globals__
        if isinstance(module.get(function.__name__), Fault):
            raise _wrong(function, "duplicate-fault", "two faults have this name", hint="rename one of the functions")
        area = module.get("AREA", function.__module__.rpartition(".")[2].replace("_", "-"))
        summary, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        said = {title: " ".join(text.split()) for title, text in _SECTION.findall(rest)}
        if area not in AREAS:
            raise _wrong(function, "bad-fault", "no such area", got=repr(area), expected=f"one of {', '.join(AREAS)}")
        if unknown := set(invisible_on) - INVISIBLE.keys():
            raise _wrong(function, "bad-fault", "INVISIBLE of faults/fault.py lacks a key", got=sorted(unknown))
        if not summary or "Looks like" not in said:
            raise _wrong(function, "bad-fault", "its docstring needs a summary and a line 'Looks like: ...'")
        seen_in = tuple(said["Seen in"].split("; ")) if "Seen in" in said else ()
        described = (name, area, summary, said["Looks like"], change, shown_by, function)
        return Fault(*described, seen_in, invisible_on, harmless)

    return declared


def collect(package: ModuleType) -> dict[str, Fault]:
    """The faults of a package by name, ordered by area, then as in its modules; harmless ones are left out.

    Raises EngineError (``duplicate-fault``) if two of them have the same name.
    """
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    listed = [f for m in modules for f in vars(m).values() if isinstance(f, Fault) and not f.harmless]
    found: dict[str, Fault] = {}
    for fault in sorted(listed, key=lambda fault: AREAS.index(fault.area)):
        if fault.name in found:
            raise _wrong(fault.function, "duplicate-fault", "two faults have this name", hint="rename one of them")
        found[fault.name] = fault
    return found


def named(faults: Mapping[str, Fault], name: str) -> Fault:
    """The fault of this name. Raises EngineError (``unknown-fault``), which lists similar names."""
    if name not in faults:
        near = difflib.get_close_matches(name, faults, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else "tritgold faults lists them"
        raise EngineError("no such fault", kind="unknown-fault", got=repr(name), hint=hint)
    return faults[name]


def _wrong(function: Callable[..., Any], kind: str, message: str, **details: Any) -> EngineError:
    file, thing = function.__code__.co_filename, f"fault {function.__name__.replace('_', '-')!r}"
    return EngineError(message, kind=kind, file=file, thing=thing, **details)
