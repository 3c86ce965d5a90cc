"""Training of the embedded golden models: quantisation-aware, on a public-domain text, on two CPU cores.

``python -m tritgold_xla.training`` is the command that made them. It needs the extra ``train`` (optax). Nothing else
imports this package.
"""

from tritgold.errors import MissingDependencyError

try:
    import optax  # type: ignore[import-untyped] # noqa: F401 - to check that it is installed
except ModuleNotFoundError as error:
    # If another module is missing, for example a dependency of optax, installing optax does not help.
    if error.name != "optax":
        raise
    raise MissingDependencyError(
        f"the training needs optax ({error})",
        kind="missing-dependency",
        thing="optax",
        hint="pip install 'tritgold[train]'",
    ) from error
