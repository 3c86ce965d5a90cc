"""A mutant as an engine: the golden model with faults, seen by the judge like any other engine."""

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.faults import generating, tokenizer
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.generating import Options
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.golden.reference_engine import ReferenceEngine


class FaultyEngine(ReferenceEngine):
    """The golden model with the faults of the mutant."""

    def __init__(self, mutant: Mutant, capacity: int | None = None, name: str = "faulty") -> None:
        super().__init__(mutant.checkpoint, capacity, mutant.arithmetic)
        self._cache = mutant.new_cache(mutant.config, self._capacity)
        self.name, self.mutant = name, mutant

    def trace(self, tokens: list[int]) -> Trace:
        """Every activation of a fresh prefill, up to the first one that is not finite."""
        trace, s = Trace(), self.mutant
        cache = s.new_cache(s.config, len(tokens))
        try:
            forward(tokens, s.checkpoint.weights, s.config, cache, trace, arithmetic=s.arithmetic)
        except NonFiniteError:
            trace.engine = self.name
        return trace

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray:
        """float32 [out, in], trit x scale, of the bytes of a format (one of ``packing.FORMATS``).

        Raises PackingError if the bytes are refused.
        """
        found = self.mutant.unpack(name, data, shape) if self.mutant.unpack else None
        return FORMATS[name].unpack(data, shape, warn=False).dense() if found is None else found

    def generate(self, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
        """Tokens, generated one by one; see ``generating.generate``."""
        return generating.generate(self.mutant, prompt, max_tokens, options)

    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
        """Tokens by block diffusion; see ``generating.diffuse``."""
        return generating.diffuse(self.mutant, prompt, max_tokens, options)

    def serve(self, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
        """Tokens of a batch server; see ``generating.serve``."""
        return generating.serve(self.mutant, prompt, max_tokens, options)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; see ``tokenizer.encode``."""
        return tokenizer.encode(self.mutant, text)

    def chat(self, message: str) -> list[int]:
        """Ids of a message in the chat template; see ``tokenizer.chat``."""
        return tokenizer.chat(self.mutant, message)

    def stream(self, ids: list[int]) -> list[str]:
        """The pieces of text of a growing list of ids."""
        return tokenizer.stream(self.mutant, ids)
