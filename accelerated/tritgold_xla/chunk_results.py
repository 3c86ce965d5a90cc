"""What a chunk's results are to the engine: refused where they are not finite, and appended to a trace."""

import numpy as np

from tritgold.config import ModelConfig
from tritgold.graph import traced_arrays
from tritgold.trace import Trace
from tritgold.trace_names import TraceName
from tritgold_xla.decoder_layer import QUANTIZED
from tritgold_xla.model import Chunk, LogitsFor
from tritgold_xla.runtime.checks import non_finite
from tritgold_xla.runtime.chunks import CHUNKS, crop

# A trace holds every layer's softmax weights over the whole cache: a quarter of the largest chunk bounds that.
TRACED_CHUNK = CHUNKS[-2]


def refuse_non_finite(chunk: Chunk, count: int, ending: LogitsFor) -> None:
    """A NonFiniteError naming the first activation, or the logits, of ``count`` tokens that are infinite or NaN."""
    wrong = np.argwhere(~np.asarray(chunk.finite))
    if wrong.size:
        layer, site = wrong[0]
        raise non_finite(f"layers.{layer}.{QUANTIZED[site]}")
    if ending == "none":
        return
    result = np.asarray(chunk.result)[: count if ending == "all" else None]
    if result[0] < 0 if ending == "greedy" else not np.isfinite(result).all():
        raise non_finite("logits")


def record(trace: Trace, chunk: Chunk, part: slice, config: ModelConfig) -> None:
    """Append a chunk's arrays to the trace in execution order, without their padding. part: its positions."""
    outer = {name: np.asarray(array) for name, array in {**chunk.outer, "logits": chunk.result}.items()}
    inner = {name: np.asarray(array) for name, array in chunk.inner.items()}
    for name, traced in traced_arrays(config).items():
        at = TraceName.of(name)
        array = outer[name] if at.layer is None else inner[at.inner][at.layer]
        trace.record(name, crop(traced, array, part.stop - part.start, keys=part.stop))
