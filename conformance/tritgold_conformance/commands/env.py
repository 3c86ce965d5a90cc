"""tritgold env: facts about the machine for bug reports and benchmarks."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import click
import numpy as np

from tritgold.errors import TritgoldError
from tritgold.machine import processor
from tritgold.modes import GOLDEN, LLAMA_CPP_Q8_K
from tritgold_conformance.commands import printing
from tritgold_conformance.engines.xla_kept import choices_here

PACKAGES = ("tritgold", "numpy", "jax", "jaxlib", "safetensors", "tokenizers", "msgspec", "click", "rich", "PyYAML")
VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "MKL_NUM_THREADS",
    "NPY_DISABLE_CPU_FEATURES",
    "XLA_FLAGS",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "TRITGOLD_CACHE",
    "TRITGOLD_CACHE_GB",
)


@click.command()
@printing.json_option
def env(as_json: bool) -> None:
    """Print versions, machine and settings."""
    facts = environment()
    if as_json:
        printing.print_json({"schema": "tritgold.env/1", **facts})
        return
    for section, values in facts.items():
        click.echo(f"{section}:")
        for name, value in values.items():
            for line in value if isinstance(value, list) else [value]:
                click.echo(f"  {name:24} {line}")


def environment() -> dict[str, dict[str, Any]]:
    """Facts by section; the version of a package that is not installed is None."""
    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {
            "python": platform.python_version(),
            "system": platform.platform(),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
        "numpy": _numpy(),
        "modes": {mode.id: list(mode.rounds) for mode in (GOLDEN, LLAMA_CPP_Q8_K)},
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "cache": _cache(),
    }


def _cache() -> dict[str, Any]:
    """The cache folder, its parts in MB, and the ways to multiply that were measured on this machine."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tritgold"
    except RuntimeError:  # the user has no home
        return {"folder": None}
    facts: dict[str, Any] = {"folder": str(folder)}
    for part in ("bench", "weights", "xla"):
        files = [file for file in (folder / part).rglob("*") if file.is_file()]
        facts[f"{part} MB"] = round(sum(file.stat().st_size for file in files) / 1e6, 1)
    if (folder / "xla-tuning.json").exists():
        try:
            facts["tuned"] = choices_here()
        except TritgoldError as error:
            facts["tuned"] = str(error)
    return facts


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numpy() -> dict[str, Any]:
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    found = config["SIMD Extensions"].get("found", [])
    return {"blas": f"{blas.get('name')} {blas.get('version')}", "simd": " ".join(found)}
