"""The state of a training run and its file: masters, moments, step, losses and evaluations."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from tritgold.errors import ConfigError, FormatError, NonFiniteError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.formats.safetensors_writer import write_safetensors
from tritgold_xla.training.optimiser import optimiser
from tritgold_xla.training.qat import Parameters, initial_parameters
from tritgold_xla.training.recipe import Recipe

_KEY, _DTYPES = "tritgold.training", {"F32": np.float32, "I32": np.int32}


@dataclass(frozen=True, eq=False)
class Run:
    """The state of a run after ``step`` steps. losses: nats per token of each step; held_out: (step, bits per byte);
    seconds: of training.
    """

    recipe: Recipe
    parameters: Parameters
    moments: optax.OptState
    step: int = 0
    losses: tuple[float, ...] = ()
    held_out: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0


def begin(recipe: Recipe, start: Parameters | None = None) -> Run:
    """A run at step 0, with masters from the seed or from ``start``, the masters of an earlier run."""
    parameters = jax.tree.map(jnp.asarray, initial_parameters(recipe) if start is None else start)
    return Run(recipe, parameters, optimiser(recipe).init(parameters))


def save(run: Run, path: Path) -> None:
    """Write the state, completely or not at all; if it fails, the previous file stays.

    Raises NonFiniteError for a state with infinity or NaN, which would replace a usable one.
    """
    named = [(_name(at), np.asarray(leaf)) for at, leaf in jax.tree.leaves_with_path(_arrays(run))]
    for name, array in named:
        if not np.isfinite(array).all():
            thing = f"tensor {name!r} after step {run.step}"
            raise NonFiniteError("is not finite", kind="training-diverged", file=path, thing=thing)
    facts = {
        "recipe": run.recipe.as_dict(),
        "step": run.step,
        "losses": run.losses,
        "held_out": run.held_out,
        "seconds": run.seconds,
    }
    write_safetensors(path, [_planned(name, array) for name, array in named], {_KEY: json.dumps(facts)})


def load(recipe: Recipe, path: Path) -> Run:
    """Read a run from ``path``.

    Raises FormatError if the file is damaged or is not a training state, ConfigError if it has another recipe.
    """
    file = SafetensorsFile(path)
    try:
        facts: dict[str, Any] = json.loads(file.metadata[_KEY])
        found = Recipe(**facts["recipe"])
        held_out = tuple((int(step), float(bits)) for step, bits in facts["held_out"])
        step, losses, seconds = int(facts["step"]), tuple(map(float, facts["losses"])), float(facts["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        hint = "give another folder, or remove the file to begin again"
        raise FormatError("holds no training run", kind="training-state", file=path, hint=hint) from error
    if found != recipe:
        raise _another(path, found, recipe)
    empty = begin(recipe)
    leaves, structure = jax.tree.flatten_with_path(_arrays(empty))
    arrays = [_read(file, _name(at), leaf) for at, leaf in leaves]
    parameters, moments = jax.tree.unflatten(structure, arrays)
    return replace(
        empty,
        parameters=parameters,
        moments=moments,
        step=step,
        losses=losses,
        held_out=held_out,
        seconds=seconds,
    )


def _arrays(run: Run) -> tuple[Parameters, optax.OptState]:
    return run.parameters, run.moments


def _planned(name: str, array: np.ndarray) -> PlannedTensor:
    code = next(code for code, dtype in _DTYPES.items() if dtype is array.dtype.type)
    return PlannedTensor(name, code, array.shape, array.nbytes, lambda: [array.tobytes()])


def _name(at: Any) -> str:
    return jax.tree_util.keystr(at, simple=True, separator=".")


def _read(file: SafetensorsFile, name: str, like: jax.Array) -> jax.Array:
    stored = file.tensors.get(name)
    if stored is None or stored.shape != like.shape or _DTYPES.get(stored.dtype) != like.dtype.type:
        raise FormatError(
            "is not the tensor that this version of the training keeps",
            kind="training-state",
            file=file.path,
            thing=f"tensor {name!r}",
            got=None if stored is None else f"{stored.dtype} {list(stored.shape)}",
            expected=f"{like.dtype} {list(like.shape)}",
            hint="remove the file to begin again",
        )
    return jnp.asarray(np.frombuffer(stored.data.tobytes(), _DTYPES[stored.dtype]).reshape(stored.shape))


def _another(path: Path, found: Recipe, recipe: Recipe) -> ConfigError:
    got, expected = differing(found.as_dict(), recipe.as_dict())
    return ConfigError(
        "holds a run of another recipe",
        kind="recipe-changed",
        file=path,
        got=got,
        expected=expected,
        hint="give another folder, or remove the file to begin again",
    )


def differing(found: dict[str, Any], wanted: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of two dictionaries with the same keys the entries that differ, of each, by name."""
    names = sorted(name for name in wanted if wanted[name] != found[name])
    return {name: found[name] for name in names}, {name: wanted[name] for name in names}
