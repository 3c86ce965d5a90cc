"""The JAX engine. The only module here that imports ``tritgold_xla``, and only when asked."""

from typing import TYPE_CHECKING

from tritgold.checkpoint import Checkpoint

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine


def open_engine(checkpoint: Checkpoint, capacity: int) -> "XlaEngine":
    """The XLA engine on a checkpoint, with room for ``capacity`` positions (at most the model's).

    Raises MissingDependencyError without JAX.
    """
    from tritgold_xla import XlaEngine

    return XlaEngine(checkpoint.config, checkpoint.weights, min(capacity, checkpoint.config.context))
