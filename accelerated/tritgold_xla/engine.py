"""XlaEngine: a model on XLA-CPU with its KV cache, behind the few methods that a judge or a decoder calls."""

from collections.abc import Sequence
from importlib.metadata import version

import jax
import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.errors import EngineError
from tritgold.graph import operations, trace_names
from tritgold.trace import Trace
from tritgold.weights import ModelWeights
from tritgold_xla import kv_cache, model
from tritgold_xla.buckets import CHUNKS, bucket, chunks, pad
from tritgold_xla.checks import check_capacity, check_room, non_finite
from tritgold_xla.flags import MODE, cpu_device
from tritgold_xla.kv_cache import KvCache
from tritgold_xla.operations import Model, run_operation
from tritgold_xla.parameters import load_parameters
from tritgold_xla.shapes import crop, token_axis

# A trace holds every layer's softmax weights over the whole capacity: a quarter of the largest chunk bounds that.
_TRACED_CHUNK = CHUNKS[-2]


class XlaEngine:
    """A ternary decoder compiled by XLA for the CPU.

    config, weights: of a checkpoint, or made in memory; the weights are packed here and not kept. capacity: positions
    of the KV cache, the model's context where it is not given.

    Tokens that are refused (ContextError) and activations that overflow (NonFiniteError) leave the engine as it was.
    Raises EngineError where JAX cannot run as this engine needs it, WeightsError for tensors of other shapes.
    """

    name = "xla"

    def __init__(self, config: ModelConfig, weights: ModelWeights, capacity: int | None = None) -> None:
        self.config = config
        self.capacity = check_capacity(config.context if capacity is None else capacity, config)
        self._device = cpu_device()
        self._parameters = load_parameters(config, weights, self.capacity, self._device)
        self._operations = {operation.name: operation for operation in operations(config)}
        self._cache = self._new_cache()
        self._length = 0

    @property
    def length(self) -> int:
        """Positions that the cache holds."""
        return self._length

    def versions(self) -> dict[str, str]:
        """What results may depend on: the versions of JAX and of its compiler, and the device."""
        return {"jax": jax.__version__, "jaxlib": version("jaxlib"), "device": self._device.device_kind}

    def reset(self) -> None:
        """Forget all tokens."""
        self._length = 0  # what the cache still holds is behind its length and never read

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        """Append the tokens. Returns the logits at each of them, float32 [tokens, vocab]."""
        ids = check_room(check_tokens(tokens, self.config, self._length), self._length, self.capacity)
        logits = np.empty((ids.size, self.config.vocab), np.float32)
        for part in chunks(ids.size):
            chunk = self._run(ids[part], self._cache, self._length + part.start)
            self._cache = chunk.cache  # before anything is refused: the old one has been donated
            self._refuse_non_finite(chunk, part.stop - part.start)
            logits[part] = np.asarray(chunk.logits)[: part.stop - part.start]
        self._length += ids.size  # only now: an error above leaves what the chunks before it wrote unseen
        return logits

    def step(self, token: int) -> np.ndarray:
        """Append one token. Returns the logits for the next one, float32 [vocab]."""
        return self.prefill([token])[0]

    def trace(self, tokens: Sequence[int]) -> Trace:
        """Every activation of a pass over the tokens from position 0, named and shaped as the golden model's.

        Uses a cache of its own: the engine's is neither read nor changed.
        """
        ids = check_room(check_tokens(tokens, self.config), 0, self.capacity)
        trace = Trace(tokens=ids.tolist(), mode=MODE.id, engine=self.name, versions=self.versions())
        cache = self._new_cache()
        for part in chunks(ids.size, _TRACED_CHUNK):
            chunk = self._run(ids[part], cache, part.start, traced=True)
            cache = chunk.cache
            self._refuse_non_finite(chunk, part.stop - part.start)
            self._record(trace, chunk, part)
        return trace

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the operation ``name`` of ``tritgold.graph`` alone, positions from 0, with this engine's weights.

        inputs: by the roles that the operation reads. Returns arrays by the roles that it writes.
        """
        if name not in self._operations:
            raise EngineError("the model has no such operation", kind="operation-name", thing=name)
        return run_operation(Model(self.config, self._parameters, self.capacity), self._operations[name], inputs)

    def _new_cache(self) -> KvCache:
        return kv_cache.new_cache(self.config, self.capacity, self._device)

    def _run(self, ids: np.ndarray, cache: KvCache, start: int, traced: bool = False) -> model.Chunk:
        """One chunk. The cache given is used up."""
        count, padded = ids.size, pad(ids, bucket(ids.size))
        place = np.int32(start), np.int32(count)
        return model.forward(self._parameters, cache, padded, *place, config=self.config, traced=traced)

    def _refuse_non_finite(self, chunk: model.Chunk, count: int) -> None:
        wrong = np.argwhere(~np.asarray(chunk.finite))
        if wrong.size:
            layer, site = wrong[0]
            raise non_finite(f"layers.{layer}.{model.QUANTIZED[site]}")
        if not np.isfinite(np.asarray(chunk.logits)[:count]).all():
            raise non_finite("logits")

    def _record(self, trace: Trace, chunk: model.Chunk, part: slice) -> None:
        """Append a chunk's arrays to the trace in execution order, without their padding."""
        outer = {name: np.asarray(array) for name, array in {**chunk.outer, "logits": chunk.logits}.items()}
        inner = {name: np.asarray(array) for name, array in chunk.inner.items()}
        for name in trace_names(self.config):
            _, layer, what = name.split(".", 2) if name.startswith("layers.") else ("", "", name)
            array = inner[what][int(layer)] if layer else outer[name]
            trace.record(name, crop(name, array, part.stop - part.start, keys=part.stop), token_axis(name))
