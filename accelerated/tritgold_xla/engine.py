"""XlaEngine: a model on XLA-CPU with its KV cache, with the few methods that a judge or a decoder calls."""

import copy
from collections.abc import Sequence
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.errors import ContextError, EngineError
from tritgold.graph import operations
from tritgold.trace import Trace
from tritgold.weights import ModelWeights
from tritgold_xla.cached_passes import CachedPasses
from tritgold_xla.chunk_results import TRACED_CHUNK, record, refuse_non_finite
from tritgold_xla.decoder_layer import Options
from tritgold_xla.kv_cache.base import cache_bytes
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.layers.cache_moves import PIECE, move
from tritgold_xla.operations import Model, OnOneDevice, Weighted, run_operation
from tritgold_xla.parameters import Progress, load_parameters, parameter_bytes, screen_of
from tritgold_xla.quick_tune import Tuning, choices_for, with_head
from tritgold_xla.runtime.checks import check_capacity, check_memory, check_room, check_sequences
from tritgold_xla.runtime.chunks import chunks
from tritgold_xla.runtime.flags import MODE, cpu_device, cpu_devices, threads
from tritgold_xla.sharding.alone import ShardedOperations
from tritgold_xla.sharding.shards import Shards
from tritgold_xla.ternary_matmul.choose import library_dots
from tritgold_xla.weights_cache.prepared import KeptWeights, prepared_parameters


class XlaEngine(CachedPasses):
    """A ternary decoder compiled by XLA for the CPU.

    config, weights: of a checkpoint, or made in memory; the weights are packed here and not kept. capacity: positions
    of the KV cache; None: the model's context. kv_cache: f32, bf16, f16, fp8_e4m3, fp8_e5m2 or int8. formulation: one
    of ``kernels`` for every matrix and number of tokens; None: the best for each. tuning: a file made by ``tune.tune``,
    whose choices for this machine are used; "auto": the file in the cache folder, after measuring for two seconds if it
    has nothing for this machine and model; None: the rule in ``choose``. sequences: how many texts the cache has room
    for, each of ``capacity`` positions. progress: called after each packed matrix with (done, total). screen: whether
    ``greedy`` reads a coarse copy of the head first; None: if that is faster; only on one device. kept_weights: a
    folder in which packed weights are kept for the next process, which maps them; None, or several devices: they are
    not kept. devices: over how many JAX devices the model is cut (``sharding``): the same bits for any number.

    Raises EngineError if JAX cannot run as this engine needs it (``devices``: it has fewer), if memory is too small
    (``memory``, before anything is allocated) or ``tuning`` is not such a file (``tuning-file``), WeightsError for
    tensors of other shapes, ConfigError for an unknown KV-cache scheme.
    """

    name = "xla"

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        capacity: int | None = None,
        kv_cache: str = "f32",
        formulation: str | None = None,
        sequences: int = 1,
        tuning: Tuning = None,
        progress: Progress | None = None,
        screen: bool | None = None,
        kept_weights: KeptWeights | None = None,
        devices: int = 1,
    ) -> None:
        self.config = config
        self.capacity = check_capacity(config.context if capacity is None else capacity, config.context)
        if screen and devices > 1:
            raise EngineError("a screened head is on one device", kind="devices", thing="screen", got=devices)
        found = cpu_devices(devices)
        self._device = cpu_device()  # of this process; the first of several devices may be of another
        self._shards = Shards(config, found) if devices > 1 else None
        scheme, own = kv_scheme(kv_cache).name, config if self._shards is None else self._shards.plan.local
        self._options = Options(scheme, choices_for(own, formulation, tuning))
        self.sequences = check_sequences(sequences)
        needed = parameter_bytes(config) + cache_bytes(config, self.capacity, kv_cache, sequences)
        check_memory(needed * sum(device.process_index == self._device.process_index for device in found) // devices)
        library_dots()  # called now, because it compiles a program
        if self._shards is None:
            self._parameters = prepared_parameters(kept_weights, config, weights, self.capacity, self._device, progress)
            self._weighted: Weighted = OnOneDevice(self._parameters)
        else:
            self._parameters = load_parameters(config, weights, self.capacity, self._shards, progress)
            self._weighted = ShardedOperations(self._shards, self._parameters)
        stored = self._shards is None and self._parameters.head.dtype == jnp.bfloat16
        measured = (config.vocab, config.hidden) if stored else None
        self._options = self._options._replace(choices=with_head(self._options.choices, measured, tuning))
        self._operations = {operation.name: operation for operation in operations(config)}
        self._cache = self._new_cache(sequences)
        self._lengths = [0] * sequences
        self._screens = self._screening_pays() if screen is None else screen
        self._screen = None  # made at its first use
        self.screened = self.unscreened = 0

    def fork(self, sequences: int, capacity: int | None = None) -> "XlaEngine":
        """Another engine on the same weights, with its own cache for so many sequences.

        capacity: positions of each; at most this engine's, which is the default. Raises ContextError for more
        (``capacity``) and for no sequences (``batch``), EngineError where memory is short (``memory``).
        """
        room = check_capacity(self.capacity if capacity is None else capacity, self.capacity, "the engine beside it")
        other = copy.copy(self)
        other.capacity, other.sequences = room, check_sequences(sequences)
        check_memory(cache_bytes(self.config, room, self._options.scheme, sequences))
        other._cache = other._new_cache(sequences)
        other._lengths = [0] * sequences
        other.screened = other.unscreened = 0
        return other

    def versions(self) -> dict[str, str]:
        """What results and speed depend on: JAX, its compiler, the device, and measured choices of kernels."""
        here = {"jax": jax.__version__, "jaxlib": version("jaxlib"), "device": self._device.device_kind}
        here |= {} if self._shards is None else {"devices": str(self._shards.plan.devices)}
        return here | ({"tuned": tuned} if (tuned := self._options.choices.told()) else {})

    @property
    def movable(self) -> bool:
        """Whether ``move`` is possible: one device, and one RoPE table without scaling for all layers."""
        plain = self.config.rope_scaling is None and self._parameters.sin.ndim == 2
        return plain and self._shards is None

    def move(self, start: int, to: int, count: int, sequence: int = 0) -> None:
        """Copy keys and values of ``count`` positions from ``start`` to the earlier ``to``, with keys rotated back.

        An approximation: above the first layer they depend on the tokens that were before them (``cache_moves``).
        Raises ContextError (``batch``) for positions that the sequence does not have, and if ``to`` is after ``start``.
        """
        has = 0 <= sequence < self.sequences and 0 <= to <= start and 0 < count <= self._lengths[sequence] - start
        if not has:
            got = f"{count} from {start} to {to} of sequence {sequence}"
            raise ContextError("no such positions", kind="batch", got=got)
        tables = self._parameters.sin, self._parameters.cos
        static = {"scheme": self._options.scheme, "kv_heads": self.config.kv_heads}
        for first in range(0, count, PIECE):
            places = start + first, to + first, min(PIECE, count - first), sequence
            self._cache = move(self._cache, *map(np.int32, places), *tables, **static)

    def greedy(self, tokens: Sequence[int]) -> int:
        """Append the tokens. Returns the most likely next one: that of the largest logit, of equal ones the lowest id.

        With one thread, a copy of the head with one byte per weight is read first (``lm_head.greedy``; made at the
        first call). ``screened`` and ``unscreened`` count the calls for which it was enough and not enough.
        """
        if not self._screens and self._shards is None:
            return int(np.argmax(self.read(tokens)))
        if self._screens and self._screen is None:
            check_memory(self.config.vocab * (self.config.hidden + 12))
            self._screen = screen_of(self._parameters.head, self._device)
        token, screened = self._append(tokens, "none", "greedy")[-1].tolist()
        if self._screens:
            self.screened, self.unscreened = self.screened + screened, self.unscreened + 1 - screened
        return token

    def _screening_pays(self) -> bool:
        """Whether ``greedy`` is faster with the coarse copy, whose loop uses one thread; the whole head uses all."""
        kernels = self._parameters.head.dtype == jnp.bfloat16 and library_dots()
        return self._shards is None and not (kernels and threads() > 1)

    def trace(self, tokens: Sequence[int]) -> Trace:
        """Every activation of a pass over the tokens from position 0, named and shaped as the golden model's.

        Uses its own cache: the engine's is neither read nor changed.
        """
        ids = check_room(check_tokens(tokens, self.config), 0, self.capacity)
        trace = Trace(tokens=ids.tolist(), mode=MODE.id, engine=self.name, versions=self.versions())
        cache = self._new_cache(1)
        for part in chunks(ids.size, TRACED_CHUNK):
            chunk = self._run(ids[part], cache, (part.start, 0), "all", traced=True)
            cache = chunk.cache
            refuse_non_finite(chunk, part.stop - part.start, "all")
            record(trace, chunk, part, self.config)
        return trace

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the operation ``name`` of ``tritgold.graph`` alone, positions from 0, with this engine's weights.

        inputs: by the roles that the operation reads. Returns arrays by the roles that it writes.
        """
        if name not in self._operations:
            raise EngineError("the model has no such operation", kind="operation-name", thing=name)
        at = Model(self.config, self._parameters, self.capacity, self._options.choices, self._weighted)
        return run_operation(at, self._operations[name], inputs)
