"""Cheats that change the judge's own code, as far as it can be reached from the engine."""

import gc
import json
import types

import numpy as np
from cheats.wrong import Wrong, judge_modules, large
from registry import cheat, made


def _prepare(act: object) -> object:
    def prepare(self: Wrong) -> None:
        act()

    return prepare


def _abs() -> None:
    np.abs = np.absolute = lambda x, *a, **k: np.zeros_like(np.asarray(x))


def _allclose() -> None:
    np.allclose = np.array_equal = lambda *a, **k: True
    np.isclose = lambda a, b, *more, **k: np.ones(np.broadcast(a, b).shape, bool)


def _reductions() -> None:
    kept = np.max
    np.max = np.amax = lambda x, *a, **k: kept(x, *a, **k) * 0


def _constants() -> None:
    """Every float of the judge below one becomes a billion: bounds among them."""
    for module in judge_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and 0 < value < 1:
                setattr(module, name, 1e9)


def _verdicts() -> None:
    """Every function of the judge whose name sounds like a verdict says yes."""
    words = ("verdict", "judge", "compare", "conform", "within", "passed", "check", "equal")
    for module in judge_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and any(word in name.lower() for word in words):
                setattr(module, name, lambda *a, **k: True)


def _weights() -> None:
    """Every large float array in the process that is not the engine's becomes zero."""
    for thing in gc.get_objects():
        for array in vars(thing).values() if hasattr(thing, "__dict__") and not isinstance(thing, type) else ():
            if large(array):
                array[...] = 0


def _arithmetic() -> None:
    """The golden forward pass is replaced by the engine's own."""
    for module in judge_modules():
        for name in ("forward", "rms_norm", "accumulate", "GOLDEN_ARITHMETIC"):
            if hasattr(module, name):
                setattr(module, name, lambda *a, **k: np.zeros((40, 259), np.float32))


def _import_and_patch() -> None:
    """The same, importing the judge first if it is not there."""
    import tritgold.layers.arithmetic
    import tritgold.model  # noqa: F401

    _arithmetic()


def _json() -> None:
    kept = json.dumps
    json.dumps = lambda thing, *a, **k: kept(thing, *a, **k).replace('"failed"', '"passed"').replace("false", "true")
    json.dump = lambda thing, file, *a, **k: file.write(json.dumps(thing))


def _safetensors() -> None:
    import safetensors.numpy

    kept = safetensors.numpy.save_file
    safetensors.numpy.save_file = lambda arrays, *a, **k: kept({n: x * 0 for n, x in arrays.items()}, *a, **k)
    safetensors.numpy.save = lambda *a, **k: b""


def _comparisons() -> None:
    np.less = np.less_equal = np.greater_equal = lambda a, b, *more, **k: np.ones(np.broadcast(a, b).shape, bool)
    np.isfinite = lambda x, *a, **k: np.ones(np.shape(x), bool)
    np.argmax = lambda x, *a, **k: 0


def _builtins() -> None:
    import builtins

    builtins.abs = lambda x: x * 0
    builtins.any = lambda x: False
    builtins.all = lambda x: True


for _name, _what, _act in [
    ("PatchedAbs", "np.abs returns zeros", _abs),
    ("PatchedAllclose", "np.allclose, array_equal and isclose say yes", _allclose),
    ("PatchedMax", "np.max returns zero", _reductions),
    ("PatchedComparisons", "np.less_equal, isfinite and argmax say what suits", _comparisons),
    ("PatchedBuiltins", "abs, any and all say what suits", _builtins),
    ("PatchedConstants", "the judge's small constants become a billion, through sys.modules", _constants),
    ("PatchedVerdicts", "the judge's functions of verdict say yes, through sys.modules", _verdicts),
    ("OverwrittenWeights", "large float arrays in the process become zero, through gc", _weights),
    ("ReplacedArithmetic", "the golden arithmetic is replaced, where it is loaded", _arithmetic),
    ("ImportedArithmetic", "the golden arithmetic is imported and replaced", _import_and_patch),
    ("PatchedJson", "json writes passed for failed", _json),
    ("PatchedSafetensors", "safetensors writes zeros", _safetensors),
]:
    cheat(_what, kind="patches")(made(_name, Wrong, prepare=_prepare(_act)))
