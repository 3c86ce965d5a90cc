"""Single operations that read weights, over several devices; ``operations.OnOneDevice`` has the same methods."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import numpy as np

from tritgold.config import ScaleRule
from tritgold_xla.parameters import Parameters
from tritgold_xla.sharding.partition import cut_of
from tritgold_xla.sharding.shards import Shards, spec_of
from tritgold_xla.sharding.split import Split
from tritgold_xla.ternary_matmul.bit_linear import PackedLinear, bit_linears
from tritgold_xla.ternary_matmul.choose import Choices

Array = jax.Array | np.ndarray


class ShardedOperations:
    """Every result is the whole array. Same methods as ``operations.OnOneDevice``."""

    def __init__(self, shards: Shards, parameters: Parameters) -> None:
        self._shards, self._parameters = shards, parameters
        self._programs: dict[Any, Callable[..., Any]] = {}

    def embed(self, tokens: Array) -> jax.Array:
        """float32 [tokens, hidden]."""
        return self._run("embed", Split.embed, tokens, self._parameters.embedding)

    def linear(
        self, name: str, layer: np.int32, codes: Array, scale: Array, rule: ScaleRule, choices: Choices
    ) -> tuple[jax.Array, jax.Array]:
        """(accumulators int32, outputs float32), each [tokens, out]."""
        function = partial(_linear, name=name, rule=rule, choices=choices)
        return self._run((name, rule, choices), function, codes, scale, layer, self._parameters.layers.linears[name])

    def logits(self, x: Array) -> jax.Array:
        """float32 [tokens, vocab]."""
        return self._run("logits", Split.logits, x, self._parameters.head)

    def _run(self, key: Hashable, function: Callable[..., Any], *arrays: Any) -> Any:
        """Run ``function`` on all devices. key: of its compiled program, which is kept."""
        if key not in self._programs:
            specs = jax.tree.map(lambda a: getattr(getattr(a, "sharding", None), "spec", spec_of()), arrays)
            self._programs[key] = self._shards.each(function, specs)
        return self._programs[key](*arrays)


def _linear(
    split: Split, codes: jax.Array, scale: jax.Array, layer: jax.Array, stack: PackedLinear, *,
    name: str, rule: ScaleRule, choices: Choices,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    own = split.own(codes, name, whole=True)
    acc, out = bit_linears(own, scale, {name: stack.at(layer)}, rule, choices, split.total)[name]
    return (acc, out) if cut_of(name).along == "in" else (split.whole(acc, name), split.whole(out, name))
