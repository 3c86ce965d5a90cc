"""Shards: a model's arrays on the devices of a mesh, and its programs compiled to run on all of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tritgold.config import ModelConfig
from tritgold.graph import traced_arrays
from tritgold.trace_names import TraceName
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.parameters import Parameters
from tritgold_xla.place import Part, Place
from tritgold_xla.runtime.flags import jit
from tritgold_xla.sharding.partition import ROWS, Plan, cut_of
from tritgold_xla.sharding.split import AXIS, Split, psum
from tritgold_xla.ternary_matmul.choose import library_dots

# The second axis of keys and values (``KvCache``) is the heads.
spec_of: Callable[..., PartitionSpec] = PartitionSpec  # typed here, because JAX leaves it untyped
_CACHE = spec_of(None, AXIS)
_WHOLE = spec_of()


class Shards(Place):
    """A model cut over devices: the place for ``load_parameters``, and ``program``, which runs programs on all of them.

    devices: of this process or of several; each process puts only the arrays of its own devices.
    """

    def __init__(self, config: ModelConfig, devices: list[jax.Device]) -> None:
        self.mesh = Mesh(np.array(devices), (AXIS,))
        mine = self.mesh.local_devices
        super().__init__(mine[0])
        self._mine = [(devices.index(device), device) for device in mine]
        self.plan = Plan.of(config, len(devices), rows_together=1 if library_dots() else ROWS)
        self._programs: dict[Any, Callable[..., Any]] = {}

    def parts(self, role: str, shape: tuple[int, int], cut: bool = True) -> list[Part]:
        """The part of each device of this process. Raises EngineError ``partition`` for a role without a rule."""
        how = cut_of(role)
        if not cut and role == "head":
            self.plan = replace(self.plan, whole_head=True, whole_embedding=self.plan.config.tied_head)
        if not cut or how.unit is None:
            return [Part(slice(0, shape[0]), slice(0, shape[1]), shape)] * len(self._mine)
        width, made = self.plan.width(how.unit), []
        for index, _ in self._mine:
            own = self.plan.part(how.unit, index)
            if how.along == "out":
                made.append(Part(own, slice(0, shape[1]), (width, shape[1])))
            else:
                made.append(Part(slice(0, shape[0]), own, (shape[0], width)))
        return made

    def put(self, role: str, parts: list[np.ndarray], out: int | None, in_: int | None, cut: bool = True) -> jax.Array:
        """One array over all devices."""
        how = cut_of(role)
        axis = None if not cut or how.unit is None else out if how.along == "out" else in_
        if axis is None:
            spec, shape, parts = _WHOLE, list(parts[0].shape), parts[:1] * len(self._mine)
        else:
            spec, shape = spec_of(*[None] * axis, AXIS), list(parts[0].shape)
            shape[axis] *= self.plan.devices
        on_devices = [jax.device_put(part, device) for part, (_, device) in zip(parts, self._mine, strict=True)]
        return jax.make_array_from_single_device_arrays(tuple(shape), NamedSharding(self.mesh, spec), on_devices)

    def agreed(self, mine: bool) -> bool:
        """Whether it holds in every process: one sum over all devices, where there are others."""
        if len(self._mine) == self.plan.devices:
            return mine
        against = [jax.device_put(np.array([not mine], np.int32), device) for _, device in self._mine]
        cut = spec_of(AXIS)
        votes = jax.make_array_from_single_device_arrays((self.plan.devices,), NamedSharding(self.mesh, cut), against)
        return int(self.each(_sum, (cut,))(votes)[0]) == 0

    def new_cache(self, capacity: int, scheme: str, sequences: int) -> KvCache:
        """As ``kv_cache.new_cache``; each device has its own heads of all sequences.

        Scales that a scheme does not have are not cut: JAX would return the empty arrays whole, and compile every
        program a second time for them.
        """
        local, devices = self.plan.local, self.plan.devices
        config = replace(local, heads=local.heads * devices, kv_heads=local.kv_heads * devices)
        made = kv_cache.new_cache(config, capacity, NamedSharding(self.mesh, _CACHE), scheme, sequences)
        whole = NamedSharding(self.mesh, _WHOLE)
        return KvCache(*(a if a.size else jnp.zeros(a.shape, a.dtype, device=whole) for a in made))

    def program(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``compiled``, a ``flags.jit`` function of parameters, cache and inputs, called the same way on every device.

        Inputs are the same on all devices, and so are the results except for the cache.
        """
        return partial(self._call, compiled)

    def _call(self, compiled: Callable[..., Any], parameters: Parameters, cache: KvCache, *inputs: Any,
              config: ModelConfig, options: Any, **static: Any) -> Any:  # fmt: skip
        del config
        options = options._replace(split=Split(self.plan))
        key = compiled, options, tuple(static.items())
        if key not in self._programs:
            function = compiled.__wrapped__  # type: ignore[attr-defined]
            body = partial(function, config=self.plan.local, options=options, **static)
            specs = jax.tree.map(lambda array: array.sharding.spec, (parameters, cache))
            self._programs[key] = self._compiled(_Body(body, Split(self.plan)), specs, len(inputs))
        cache, rest = self._programs[key](parameters, cache, *inputs)
        return rest._replace(cache=cache)

    def _compiled(self, body: "_Body", specs: tuple[Any, Any], inputs: int) -> Callable[..., Any]:
        specs_in, specs_out = (*specs, *[_WHOLE] * inputs), (specs[1], _WHOLE)
        mapped = on_every_device(body.__call__, mesh=self.mesh, in_specs=specs_in, out_specs=specs_out)

        def program(parameters: Parameters, cache: KvCache, *inputs: Any) -> Any:
            return mapped(parameters, cache, *inputs)

        return jit(program, donate=("cache",))

    def each(self, function: Callable[..., Any], specs: tuple[Any, ...]) -> Callable[..., Any]:
        """Run a function of a Split and arrays on every device; its results are whole. specs: of the arrays."""
        body = partial(function, Split(self.plan))
        return jit(on_every_device(body, mesh=self.mesh, in_specs=specs, out_specs=_WHOLE))


def _sum(_: Split, votes: jax.Array) -> jax.Array:
    return psum(votes, AXIS)


class _Body(NamedTuple):
    """One device's program: calls the function, and gathers the arrays of a trace from all devices."""

    function: Callable[..., Any]
    split: Split

    def __call__(self, parameters: Parameters, cache: KvCache, *inputs: Any) -> tuple[KvCache, Any]:
        result = self.function(parameters, cache, *inputs)
        if inner := getattr(result, "inner", None):
            traced = traced_arrays(self.split.plan.config)
            axes = {TraceName.of(name).inner: array.axes for name, array in traced.items()}
            whole = {name: self.split.whole_trace(name, array, axes[name]) for name, array in inner.items()}
            result = result._replace(inner=whole)
        return result.cache, result._replace(cache=None)


def on_every_device(function: Callable[..., Any], *, mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """``jax.shard_map``, by the name of this version. That replicated results are equal is not checked by JAX."""
    newer: Callable[..., Callable[..., Any]] | None = getattr(jax, "shard_map", None)
    if newer is not None:
        return newer(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map

    older: Callable[..., Callable[..., Any]] = shard_map
    return older(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)
