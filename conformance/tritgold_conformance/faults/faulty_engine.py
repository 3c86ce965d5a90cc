"""A subject as an engine: the golden model with faults, seen by the judge like any other engine."""

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.engines.reference import ReferenceEngine
from tritgold_conformance.faults.fault import Subject
from tritgold_conformance.faults.packing import FORMATS


class FaultyEngine(ReferenceEngine):
    """The golden model with whatever faults the subject has."""

    def __init__(self, subject: Subject, capacity: int | None = None, name: str = "faulty") -> None:
        super().__init__(subject.checkpoint, capacity, subject.arithmetic)
        self._cache = subject.new_cache(subject.config, self._capacity)
        self.name, self.subject = name, subject

    def trace(self, tokens: list[int]) -> Trace:
        """Every activation of a fresh prefill, up to where one is not finite."""
        trace, s = Trace(), self.subject
        cache = s.new_cache(s.config, len(tokens))
        try:
            forward(tokens, s.checkpoint.weights, s.config, cache, trace, arithmetic=s.arithmetic)
        except NonFiniteError:
            trace.engine = self.name
        return trace

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray:
        """float32 [out, in], trit x scale, of the bytes of a format (one of ``packing.FORMATS``).

        Raises PackingError where the bytes are refused.
        """
        found = self.subject.unpack(name, data, shape) if self.subject.unpack else None
        return FORMATS[name].unpack(data, shape).dense() if found is None else found
