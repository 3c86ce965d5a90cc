"""Shapes in signatures are checked while the tests run, once for each combination of shapes.

jaxtyping and beartype take longer than most operations on a small model: a pass took 10.7 ms instead of 4.4. What they
say of a call depends on types, shapes and dtypes alone, so what they have accepted once is not asked again.
"""

import inspect
from collections.abc import Callable, Hashable
from functools import partial, wraps
from types import FunctionType
from typing import Any

import jaxtyping

_jaxtyped = jaxtyping.jaxtyped
Function = Callable[..., Any]


def install(modules: list[str]) -> None:
    """Check what these modules define. Before they are imported: jaxtyping rewrites them as they load."""
    jaxtyping.jaxtyped = once_a_shape  # type: ignore[assignment]
    jaxtyping.install_import_hook(modules, "beartype.beartype")


def once_a_shape(function: Any = None, *, typechecker: Any) -> Any:
    """``jaxtyping.jaxtyped``, passed over for arguments and results like those that it has accepted."""
    if function is None:
        return partial(once_a_shape, typechecker=typechecker)
    checked = _jaxtyped(function, typechecker=typechecker)
    if type(function) is not FunctionType or inspect.isgeneratorfunction(function):
        return checked
    accepted: dict[Hashable, set[Hashable]] = {}  # arguments -> results

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            given = _form(args), *((name, _form(value)) for name, value in kwargs.items())
        except TypeError:
            return checked(*args, **kwargs)
        if given not in accepted:
            result = checked(*args, **kwargs)
            accepted[given] = {_form_or_none(result)}
            return result
        result = function(*args, **kwargs)
        got = _form_or_none(result)
        if got is None or got not in accepted[given]:
            _jaxtyped(_giving(function, result), typechecker=typechecker)(*args, **kwargs)
            accepted[given].add(got)
        return result

    return wrapped


def _giving(function: FunctionType, result: Any) -> Function:
    """A function with the same signature, whose result is this one."""

    def given(*_: Any, **__: Any) -> Any:
        return result

    same = FunctionType(given.__code__, function.__globals__, function.__name__, None, given.__closure__)
    return wraps(function)(same)


def _form(value: Any) -> Hashable:
    """All of a value that an annotation can depend on. TypeError for a container whose items are not looked at."""
    if (shape := getattr(value, "shape", None)) is not None and (dtype := getattr(value, "dtype", None)) is not None:
        return type(value), shape, dtype
    if isinstance(value, tuple):
        return type(value), *map(_form, value)
    if isinstance(value, list | dict | set | frozenset):
        raise TypeError
    return (type(value), value) if isinstance(value, int | str) else type(value)


def _form_or_none(value: Any) -> Hashable | None:
    try:
        return _form(value)
    except TypeError:
        return None
