"""tritgold_xla: the ternary decoder on JAX and XLA-CPU. Optional: no other part of tritgold needs JAX."""

from tritgold.errors import MissingDependencyError

try:
    from tritgold_xla.engine import XlaEngine
except ModuleNotFoundError as error:
    # jax without jaxlib raises a ModuleNotFoundError that names no module; any other missing module is a bug here.
    if error.name is not None and error.name.partition(".")[0] not in ("jax", "jaxlib"):
        raise
    raise MissingDependencyError(
        f"the XLA engine needs JAX ({error})",
        kind="missing-dependency",
        thing="jax",
        hint="pip install 'tritgold[xla]'",
    ) from error

__all__ = ["XlaEngine"]
