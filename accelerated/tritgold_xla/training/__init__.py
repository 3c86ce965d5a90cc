"""Training of the embedded golden models: quantisation-aware, from a public-domain text, on two CPU cores.

``python -m tritgold_xla.training`` is the recorded command. Extra ``train`` (optax). Nothing at run time needs this.
"""

from tritgold.errors import MissingDependencyError

try:
    import optax  # type: ignore[import-untyped] # noqa: F401 - only to see that it is there
except ModuleNotFoundError as error:
    # Any other missing module, of optax's own needs among them, is not cured by installing optax.
    if error.name != "optax":
        raise
    raise MissingDependencyError(
        f"the training needs optax ({error})",
        kind="missing-dependency",
        thing="optax",
        hint="pip install 'tritgold[train]'",
    ) from error
