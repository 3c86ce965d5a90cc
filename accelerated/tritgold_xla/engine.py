"""XlaEngine: a model on XLA-CPU with its KV cache, behind the few methods that a judge or a decoder calls."""

import copy
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.errors import ContextError, EngineError
from tritgold.graph import operations
from tritgold.trace import Trace
from tritgold.weights import ModelWeights
from tritgold_xla import model
from tritgold_xla.chunk_results import TRACED_CHUNK, record, refuse_non_finite
from tritgold_xla.decoder_layer import Options
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import Extended, KvCache, cache_bytes
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.layers.cache_moves import PIECE, move
from tritgold_xla.layers.lm_head import CoarseHead
from tritgold_xla.model import LogitsFor
from tritgold_xla.operations import Model, OnOneDevice, Weighted, run_operation
from tritgold_xla.parameters import Progress, load_parameters, parameter_bytes, screen_of
from tritgold_xla.runtime.checks import (
    check_block,
    check_capacity,
    check_memory,
    check_room,
    check_sequences,
    non_finite,
)
from tritgold_xla.runtime.chunks import CHUNKS, bucket, chunks, pad, whole_blocks
from tritgold_xla.runtime.flags import MODE, cpu_device, cpu_devices, threads
from tritgold_xla.sharding.alone import ShardedOperations
from tritgold_xla.sharding.shards import Shards
from tritgold_xla.ternary_matmul.choose import library_dots
from tritgold_xla.ternary_matmul.quick_tune import Tuning, choices_for
from tritgold_xla.weights_cache.prepared import KeptWeights, prepared_parameters


class XlaEngine:
    """A ternary decoder compiled by XLA for the CPU.

    config, weights: of a checkpoint, or made in memory; the weights are packed here and not kept. capacity: positions
    of the KV cache, the model's context where it is not given. kv_cache: f32, bf16, f16, fp8_e4m3, fp8_e5m2 or int8.
    formulation: one of ``kernels`` for every matrix, whatever the number of tokens; None: what suits each. tuning:
    a file that ``tune.tune`` has made, whose choices for this machine are used; "auto": the file of the cache folder,
    after measuring for two seconds where it has nothing for this machine and model; None: the rule in ``choose``.
    sequences: how many texts the cache has room for, each of ``capacity`` positions; all but ``step_all`` are of the
    first, or of the one that is named. progress: called after each matrix that is packed, with how many are done and of
    how many. screen: whether ``greedy`` reads a coarse copy of the head first; None: where that is faster.
    kept_weights: a folder in which packed weights are kept for the next process, which maps them; None: nowhere, as
    over several devices. devices: over how many JAX devices the model is cut (``sharding``): the same bits for any
    number; one alone can screen.

    Tokens that are refused (ContextError) and activations that overflow (NonFiniteError) leave the engine as it was.
    Raises EngineError where JAX cannot run as this engine needs it (``devices``: it has fewer), where memory is short
    (``memory``, before anything is allocated) or ``tuning`` is not one (``tuning-file``), WeightsError for tensors
    of other shapes, ConfigError for an unknown KV-cache scheme.
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
        self._device = cpu_device()  # of this process, as the first of several need not be
        self._shards = Shards(config, found) if devices > 1 else None
        scheme, own = kv_scheme(kv_cache).name, config if self._shards is None else self._shards.plan.local
        self._options = Options(scheme, choices_for(own, formulation, tuning))
        self.sequences = check_sequences(sequences)
        needed = parameter_bytes(config) + cache_bytes(config, self.capacity, kv_cache, sequences)
        check_memory(needed * sum(device.process_index == self._device.process_index for device in found) // devices)
        library_dots()  # asked now, for it compiles a program of its own
        if self._shards is None:
            self._parameters = prepared_parameters(kept_weights, config, weights, self.capacity, self._device, progress)
            self._weighted: Weighted = OnOneDevice(self._parameters)
        else:
            self._parameters = load_parameters(config, weights, self.capacity, self._shards, progress)
            self._weighted = ShardedOperations(self._shards, self._parameters)
        self._operations = {operation.name: operation for operation in operations(config)}
        self._cache = self._new_cache(sequences)
        self._lengths = [0] * sequences
        self._screens = self._screening_pays() if screen is None else screen
        self._screen: CoarseHead | None = None  # made when it is first asked for
        self.screened = self.unscreened = 0

    def fork(self, sequences: int, capacity: int | None = None) -> "XlaEngine":
        """Another engine on the same weights, with a cache of its own for so many sequences.

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

    @property
    def length(self) -> int:
        """Positions that the cache holds of the first sequence."""
        return self._lengths[0]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions that the cache holds of each sequence."""
        return tuple(self._lengths)

    def versions(self) -> dict[str, str]:
        """What results and speed depend on: JAX, its compiler, the device, and the choices that were measured."""
        here = {"jax": jax.__version__, "jaxlib": version("jaxlib"), "device": self._device.device_kind}
        here |= {} if self._shards is None else {"devices": str(self._shards.plan.devices)}
        return here | ({"tuned": tuned} if (tuned := self._options.choices.told()) else {})

    def reset(self) -> None:
        """Forget all tokens."""
        self._lengths = [0] * self.sequences  # what the cache still holds is after its length and never read
        if self._cache.keys.is_deleted():  # given to a program whose call was interrupted
            self._cache = self._new_cache(self.sequences)

    def truncate(self, length: int, sequence: int = 0) -> None:
        """Forget the positions of a sequence from ``length`` on. Raises ContextError (``batch``) where it has fewer."""
        if not 0 <= sequence < self.sequences or not 0 <= length <= self._lengths[sequence]:
            raise ContextError("no such positions", kind="batch", got=f"{length} of sequence {sequence}")
        self._lengths[sequence] = length

    @property
    def movable(self) -> bool:
        """Whether ``move`` can turn keys: on one device, where all layers have one rotation that scales nothing."""
        plain = self.config.rope_scaling is None and self._parameters.sin.ndim == 2
        return plain and self._shards is None

    def move(self, start: int, to: int, count: int, sequence: int = 0) -> None:
        """Copy keys and values of ``count`` positions from ``start`` on to those from ``to`` on, keys turned back.

        An approximation: above the first layer they are those of other tokens before them (``cache_moves``). Raises
        ContextError (``batch``) for positions that the sequence does not have, and for a way up.
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

    def prefill(self, tokens: Sequence[int], sequence: int = 0) -> np.ndarray:
        """Append the tokens. Returns the logits at each of them, float32 [tokens, vocab]."""
        return np.concatenate(self._append(tokens, "all", "all", sequence=sequence))

    def read(self, tokens: Sequence[int], block: int | None = None, sequence: int = 0) -> np.ndarray:
        """Append the tokens. Returns the logits at the last one, float32 [vocab]; the head is computed for it alone.

        block: tokens see their own block of so many positions whole, as far as it is among these tokens.
        """
        return self._append(tokens, "none", "last", block, sequence)[-1]

    def step(self, token: int) -> np.ndarray:
        """Append one token. Returns the logits for the next one, float32 [vocab]."""
        return self._append([token], "none", "last")[-1]

    def step_all(self, tokens: Sequence[int]) -> np.ndarray:
        """Append one token to each sequence. Returns the logits for the next ones, float32 [sequences, vocab]."""
        if len(tokens) != self.sequences:
            raise ContextError(
                "one token for each sequence", kind="batch", got=f"{len(tokens)} tokens", expected=self.sequences
            )
        pairs = zip(tokens, self._lengths, strict=True)
        checked = [check_room(check_tokens([token], self.config, past), past, self.capacity) for token, past in pairs]
        ids = np.concatenate(checked)
        options = self._options._replace(batched=True)
        starts, places = np.array(self._lengths, np.int32), (np.int32(ids.size), np.int32(0))
        forward = self._program(model.forward)
        chunk = forward(
            self._parameters, self._cache, ids, starts, *places, config=self.config, options=options, ending="all"
        )
        self._cache = chunk.cache
        refuse_non_finite(chunk, ids.size, "all")
        self._lengths = [length + 1 for length in self._lengths]
        return np.array(chunk.result)

    def greedy(self, tokens: Sequence[int]) -> int:
        """Append the tokens. Returns the most likely next one: that of the largest logit, of equal ones the lowest id.

        One thread screens the head with a byte a weight (``lm_head.greedy``), made at the first call; ``screened`` and
        ``unscreened`` count where that sufficed and where it did not.
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
        """The screen's loop runs on one thread, whatever there are; the kernels for the whole head run on all."""
        kernels = self._parameters.head.dtype == jnp.bfloat16 and library_dots()
        return self._shards is None and not (kernels and threads() > 1)

    def _program(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``compiled``, or on every device."""
        return compiled if self._shards is None else self._shards.program(compiled)

    def run_on_cache(
        self, compiled: Callable[..., Extended], inputs: object, block: int | None, thing: str, **static: object
    ) -> Extended:
        """Run a compiled program over parameters, cache and ``inputs``; the engine keeps the cache that it returns.

        block: as in ``read``. static: further static arguments. The length stays: the caller says what of the cache
        counts. Raises NonFiniteError naming ``thing`` where the result is not finite.
        """
        options = self._options._replace(block=block)
        program: Callable[..., Extended] = self._program(compiled)
        result = program(self._parameters, self._cache, inputs, config=self.config, options=options, **static)
        self._cache = result.cache
        if not result.finite:
            raise non_finite(thing)
        return result

    def trace(self, tokens: Sequence[int]) -> Trace:
        """Every activation of a pass over the tokens from position 0, named and shaped as the golden model's.

        Uses a cache of its own: the engine's is neither read nor changed.
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

    def _new_cache(self, sequences: int) -> KvCache:
        if self._shards is not None:
            return self._shards.new_cache(self.capacity, self._options.scheme, sequences)
        return kv_cache.new_cache(self.config, self.capacity, self._device, self._options.scheme, sequences)

    def _append(
        self, tokens: Sequence[int], ending: LogitsFor, last: LogitsFor, block: int | None = None, sequence: int = 0
    ) -> list[np.ndarray]:
        """The results of the chunks; last: the ending of the last of them. All or nothing."""
        if not 0 <= sequence < self.sequences:
            raise ContextError("no such sequence", kind="batch", got=sequence, expected=f"below {self.sequences}")
        check_block(block)
        past = self._lengths[sequence]
        ids = check_room(check_tokens(tokens, self.config, past), past, self.capacity)
        results = []
        for part in chunks(ids.size, CHUNKS[-1] if block is None else whole_blocks(block)):
            count, wanted = part.stop - part.start, last if part.stop == ids.size else ending
            chunk = self._run(ids[part], self._cache, (past + part.start, sequence), wanted, block=block)
            self._cache = chunk.cache  # before anything is refused: the old one has been donated
            refuse_non_finite(chunk, count, wanted)
            result = np.array(chunk.result)
            results.append(result[:count] if wanted == "all" else result)
        self._lengths[sequence] += ids.size  # only now: an error above leaves what the chunks before it wrote unseen
        return results

    def _run(
        self,
        ids: np.ndarray,
        cache: KvCache,
        at: tuple[int, int],
        ending: LogitsFor,
        traced: bool = False,
        block: int | None = None,
    ) -> model.Chunk:
        """One chunk; at: position and sequence. The cache given is used up."""
        count, padded = ids.size, pad(ids, bucket(ids.size))
        place = np.int32(at[0]), np.int32(count), np.int32(at[1])
        options = self._options._replace(block=block)
        static = {"config": self.config, "options": options, "ending": ending, "traced": traced}
        # To the one program that reads it: with another argument the others would be compiled again.
        parameters = self._parameters._replace(screen=self._screen if ending == "greedy" else None)
        chunk: model.Chunk = self._program(model.forward)(parameters, cache, padded, *place, **static)
        return chunk
