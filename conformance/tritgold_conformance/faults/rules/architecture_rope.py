"""Faults of architectures: RoPE's scaling left out, applied twice or in part, and which theta a layer has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.trace_names import TraceName
from tritgold_conformance.faults.fault import Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import altered, with_arithmetic, with_config

AREA = "architecture"
_QWEN, _GEMMA, _GRANITE = (Witness("operations", name) for name in ("qwen", "gemma", "granite"))


def _divided_by(s: Mutant, divisors: np.ndarray) -> Mutant | None:
    """The model with other divisors of its frequencies."""
    assert s.config.rope_scaling is not None
    return with_config(s, rope_scaling=replace(s.config.rope_scaling, divisors=tuple(map(float, divisors))))


@known_fault(_GRANITE, invisible_on=("position-0",))
def rope_scaling_missing(s: Mutant) -> Mutant | None:
    """The scaling of RoPE is not read: frequencies are those of theta alone.

    Looks like: short texts nearly right, long ones not"""
    return with_config(s, rope_scaling=None)


@known_fault(_GRANITE, invisible_on=("position-0",))
def rope_scaling_twice(s: Mutant) -> Mutant | None:
    """Frequencies are divided twice: by the file's divisors, and by those of its keys.

    Looks like: short texts nearly right, long ones not"""
    return None if s.config.rope_scaling is None else _divided_by(s, np.square(s.config.rope_scaling.divisors))


@known_fault(_GRANITE, invisible_on=("position-0",))
def rope_scaling_without_its_band(s: Mutant) -> Mutant | None:
    """Frequencies between the slow and the fast ones are left as they are, where llama3 and yarn blend.

    Looks like: off by little, more with the distance"""
    if s.config.rope_scaling is None:
        return None
    divisors = np.array(s.config.rope_scaling.divisors)
    return _divided_by(s, np.where(divisors < divisors.max(), 1.0, divisors))


@known_fault(_GRANITE, invisible_on=("position-0",))
def rope_scaling_of_all_frequencies(s: Mutant) -> Mutant | None:
    """Every frequency is divided by the factor: llama3 or yarn is taken for linear.

    Looks like: neighbours are blurred, long distances right"""
    if s.config.rope_scaling is None:
        return None
    divisors = np.array(s.config.rope_scaling.divisors)
    return _divided_by(s, np.full_like(divisors, divisors.max()))


@known_fault(_QWEN)
def yarn_factor_dropped(s: Mutant) -> Mutant | None:
    """Sines and cosines are not multiplied by yarn's attention factor.

    Looks like: attention too flat, from position 0 on"""
    scaling = s.config.rope_scaling
    return None if scaling is None else with_config(s, rope_scaling=replace(scaling, magnitude=1.0))


@known_fault(_QWEN)
def yarn_factor_on_queries_alone(s: Mutant) -> Mutant | None:
    """Yarn's attention factor multiplies q and not k: scores have it once, where they have its square.

    Looks like: attention a little too flat"""
    scaling = s.config.rope_scaling
    if scaling is None or scaling.magnitude == 1:
        return None
    size = np.float32(scaling.magnitude)

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        return value / size if TraceName.of(name).inner == "k_rope" else None

    return altered(s, alter)


@known_fault(_GEMMA, invisible_on=("position-0",))
def rope_scaling_of_local_layers(s: Mutant) -> Mutant | None:
    """Layers with a window and a theta of their own have the scaling of the others as well.

    Looks like: the layers that see everything right, the others not"""
    scaling, right = s.config.rope_scaling, s.arithmetic.rotation_table
    if scaling is None or s.config.local_rope_theta is None:
        return None

    def rotation_table(positions: np.ndarray, head_dim: int, theta: float, *_: Any) -> Any:
        return right(positions, head_dim, theta, scaling)

    return with_arithmetic(s, rotation_table=rotation_table)


@known_fault(_GEMMA, invisible_on=("position-0",))
def global_theta_in_every_layer(s: Mutant) -> Mutant | None:
    """Layers with a window have the theta and the scaling of the layers that see everything.

    Looks like: the layers that see everything right, the others not"""
    return with_config(s, local_rope_theta=None)


@known_fault(_GEMMA, invisible_on=("position-0",))
def local_theta_in_every_layer(s: Mutant) -> Mutant | None:
    """Layers that see everything have the theta of those with a window, and no scaling.

    Looks like: long texts lose the thread"""
    local = s.config.local_rope_theta
    return None if local is None else with_config(s, rope_theta=local, rope_scaling=None)
