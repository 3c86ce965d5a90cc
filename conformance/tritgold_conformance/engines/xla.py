"""The JAX engine as the judge sees it. The only module here that imports ``tritgold_xla``, and only when asked."""

from pathlib import Path

from tritgold.checkpoint import open_checkpoint
from tritgold_conformance.engine import Engine


def open_engine(path: Path) -> Engine:
    """The XLA engine on a checkpoint. Raises MissingDependencyError without JAX."""
    from tritgold_xla.engine import XlaEngine

    checkpoint = open_checkpoint(path)
    return XlaEngine(checkpoint.config, checkpoint.weights)
