"""tritgold env: facts about the machine for bug reports and benchmarks."""

import importlib.metadata
import os
import platform
from typing import Any

import click
import numpy as np

from tritgold.machine import processor
from tritgold.modes import GOLDEN, LLAMA_CPP_Q8_K
from tritgold_conformance.commands import printing

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
    }


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
