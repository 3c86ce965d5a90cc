"""Figures of the structure, as docs/decisions state them: ``python docs/_make/structure.py [CHECKOUT]``.

For each of the three packages: lines, files, files over 250 lines, functions over 60, lines that say ``Any``, modules
with a test of the same name, depth of the import graph, circles, and imports against the order of the ``layers``
contract in pyproject.toml. A checkout of another commit can be named, to compare (``git worktree add``).
"""

import ast
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp

PACKAGES = {"reference": "tritgold", "accelerated": "tritgold_xla", "conformance": "tritgold_conformance"}
LONG_FILE, LONG_FUNCTION = 250, 60  # lines


def figures(root: Path, folder: str, package: str) -> dict[str, int]:
    """All figures of one package; counts."""
    files = {path: path.read_text("utf-8") for path in sorted((root / folder / package).rglob("*.py"))}
    lines = {path: text.count("\n") for path, text in files.items()}
    modules = [path for path in files if path.stem not in ("__init__", "__main__")]
    tested = {path.stem.removeprefix("test_") for path in (root / "tests").rglob("test_*.py")}
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    for path, text in files.items():  # importlib.import_module("...") is an import too
        module = ".".join(path.relative_to(root / folder).with_suffix("").parts).removesuffix(".__init__")
        imports[module] = imports[module] | (_by_name(text) & imports.keys())
    circles = list(_circles(imports))
    return {
        "files": len(files),
        "folders": len({path.parent for path in files}),
        "modules in the package's own folder": sum(path.parent == root / folder / package for path in modules),
        "lines": sum(lines.values()),
        f"files over {LONG_FILE} lines": sum(count > LONG_FILE for count in lines.values()),
        f"functions over {LONG_FUNCTION} lines": sum(map(_long_functions, files.values())),
        "lines with Any": sum("Any" in line for text in files.values() for line in text.splitlines()),
        "modules": len(modules),
        "modules with a test of the same name": sum(path.stem in tested for path in modules),
        "depth of the import graph": _depth(imports, circles),
        "circles": len(circles),
        "modules in circles": sum(map(len, circles)),
        "folders that import each other": _mutual(imports, package),
        "imports against the layers contract": _upward(root, package, imports),
    }


def _long_functions(text: str) -> int:
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 > LONG_FUNCTION for node in found)


def _by_name(text: str) -> set[str]:
    """Modules that a file imports by importlib, under a name that stands in it."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    named = (c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "import_module" and c.args)
    return {str(c.args[0].value) for c in named if isinstance(c.args[0], ast.Constant)}


def _reachable(imports: dict[str, set[str]], start: str) -> set[str]:
    seen, left = set[str](), list(imports[start])
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += imports.get(module, ())
    return seen


def _circles(imports: dict[str, set[str]]) -> Iterator[set[str]]:
    """Sets of modules that import one another, directly or through others."""
    below = {module: _reachable(imports, module) for module in imports}
    left = {module for module in imports if module in below[module]}
    while left:
        module = min(left)
        circle = {other for other in below[module] if module in below[other]}
        yield circle
        left -= circle


def _depth(imports: dict[str, set[str]], circles: list[set[str]]) -> int:
    """Modules on the longest chain of imports; a circle counts once."""
    place = {module: min(circle) for circle in circles for module in circle}
    below: dict[str, set[str]] = {}
    for module, named in imports.items():
        one = place.get(module, module)
        below.setdefault(one, set()).update(place.get(n, n) for n in named if place.get(n, n) != one)
    depths: dict[str, int] = {}

    def depth(module: str) -> int:
        if module not in depths:
            depths[module] = 1 + max(map(depth, below.get(module, ())), default=0)
        return depths[module]

    return max(map(depth, below))


def _part(module: str) -> str:
    """The folder, or the module of the package's own folder, that a module lies in."""
    return [*module.split("."), ""][1]


def _mutual(imports: dict[str, set[str]], package: str) -> int:
    pairs = {(_part(m), _part(n)) for m, named in imports.items() for n in named if _part(m) and _part(n)}
    return sum((b, a) in pairs for a, b in pairs if a < b)


def _upward(root: Path, package: str, imports: dict[str, set[str]]) -> int:
    """-1 where the checkout has no such contract."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [c["layers"] for c in contracts if c["type"] == "layers" and package in c.get("containers", ())]
    if not layers:
        return -1
    floor = {part.strip(): n for n, line in enumerate(layers[0]) for part in line.replace(":", "|").split("|")}
    edges = ((_part(m), _part(n)) for m, named in imports.items() for n in named)
    return sum(floor.get(n, 0) < floor.get(m, 0) for m, n in edges if m and n)


def main(root: Path) -> None:
    """Print all figures as JSON."""
    sys.path[:0] = [str(root / folder) for folder in PACKAGES]
    print(json.dumps({folder: figures(root, folder, package) for folder, package in PACKAGES.items()}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
