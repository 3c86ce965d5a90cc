"""Shapes in signatures are checked while the tests run; outside them the annotations cost nothing."""

from jaxtyping import install_import_hook

# Before any test imports them: jaxtyping rewrites the modules as they load.
install_import_hook(
    [
        "tritgold.kv_cache.token_rows",
        "tritgold.layers",
        "tritgold.sparsity.zero_skipping",
        "tritgold_xla.attention",
        "tritgold_xla.bit_linear",
        "tritgold_xla.layers",
        "tritgold_xla.packed",
    ],
    "beartype.beartype",
)
