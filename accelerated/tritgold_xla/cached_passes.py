"""CachedPasses: texts in the KV cache, and the compiled passes over chunks of tokens that extend them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.errors import ContextError
from tritgold_xla import model
from tritgold_xla.chunk_results import refuse_non_finite
from tritgold_xla.decoder_layer import Options
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import Extended, KvCache
from tritgold_xla.layers.lm_head import CoarseHead
from tritgold_xla.model import LogitsFor
from tritgold_xla.parameters import Parameters
from tritgold_xla.runtime.checks import check_block, check_room, non_finite
from tritgold_xla.runtime.chunks import CHUNKS, bucket, chunks, pad, whole_blocks
from tritgold_xla.sharding.shards import Shards


class CachedPasses:
    """``sequences`` texts in one KV cache, each with up to ``capacity`` positions. Made by ``engine.XlaEngine``.

    Methods without a ``sequence`` read and extend the first one. A pass that raises ContextError (refused tokens) or
    NonFiniteError (overflow) leaves all texts as they were.
    """

    config: ModelConfig
    capacity: int
    sequences: int
    _device: jax.Device
    _shards: Shards | None  # None: one device
    _options: Options
    _parameters: Parameters
    _cache: KvCache
    _lengths: list[int]  # positions of each text; what the cache holds after them is never read
    _screen: CoarseHead | None

    @property
    def length(self) -> int:
        """Positions of the first sequence in the cache."""
        return self._lengths[0]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions of each sequence in the cache."""
        return tuple(self._lengths)

    def reset(self) -> None:
        """Forget all tokens."""
        self._lengths = [0] * self.sequences  # what the cache still holds is after its length and never read
        if self._cache.keys.is_deleted():  # given to a program whose call was interrupted
            self._cache = self._new_cache(self.sequences)

    def truncate(self, length: int, sequence: int = 0) -> None:
        """Forget the positions of a sequence from ``length`` on. Raises ContextError (``batch``) if it has fewer."""
        if not 0 <= sequence < self.sequences or not 0 <= length <= self._lengths[sequence]:
            raise ContextError("no such positions", kind="batch", got=f"{length} of sequence {sequence}")
        self._lengths[sequence] = length

    def prefill(self, tokens: Sequence[int], sequence: int = 0) -> np.ndarray:
        """Append the tokens. Returns the logits at each of them, float32 [tokens, vocab]."""
        return np.concatenate(self._append(tokens, "all", "all", sequence=sequence))

    def read(self, tokens: Sequence[int], block: int | None = None, sequence: int = 0) -> np.ndarray:
        """Append the tokens. Returns the logits at the last one, float32 [vocab]; the head is computed only for it.

        block: each token sees its whole block of so many positions, as far as the block is among these tokens.
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

    def _program(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``compiled`` for one device, or the same program for all devices."""
        return compiled if self._shards is None else self._shards.program(compiled)

    def run_on_cache(
        self, compiled: Callable[..., Extended], inputs: object, block: int | None, thing: str, **static: object
    ) -> Extended:
        """Run a compiled program over parameters, cache and ``inputs``; the engine keeps the cache that it returns.

        block: as in ``read``. static: further static arguments. The lengths do not change. Raises NonFiniteError, which
        names ``thing``, if the result is not finite.
        """
        options = self._options._replace(block=block)
        program: Callable[..., Extended] = self._program(compiled)
        result = program(self._parameters, self._cache, inputs, config=self.config, options=options, **static)
        self._cache = result.cache
        if not result.finite:
            raise non_finite(thing)
        return result

    def _new_cache(self, sequences: int) -> KvCache:
        if self._shards is not None:
            return self._shards.new_cache(self.capacity, self._options.scheme, sequences)
        return kv_cache.new_cache(self.config, self.capacity, self._device, self._options.scheme, sequences)

    def _append(
        self, tokens: Sequence[int], ending: LogitsFor, last: LogitsFor, block: int | None = None, sequence: int = 0
    ) -> list[np.ndarray]:
        """Append all tokens or none; the results of the chunks. last: the ending of the last chunk."""
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
        """Run one chunk. at: position and sequence. The given cache is donated: use the one in the result."""
        count, padded = ids.size, pad(ids, bucket(ids.size))
        place = np.int32(at[0]), np.int32(count), np.int32(at[1])
        options = self._options._replace(block=block)
        static = {"config": self.config, "options": options, "ending": ending, "traced": traced}
        # To the one program that reads it: with another argument the others would be compiled again.
        parameters = self._parameters._replace(screen=self._screen if ending == "greedy" else None)
        chunk: model.Chunk = self._program(model.forward)(parameters, cache, padded, *place, **static)
        return chunk
