"""``modules_to_not_convert`` of a quantization_config, as transformers reads it: which linears stay dense.

Source: transformers 5.24 ``quantizers/quantizers_utils.py`` (should_convert_module) and ``quantizers/base.py``
(get_modules_to_not_convert): a list replaces the default, which is ``lm_head`` only. A name matches a module's name
from its start up to a dot or its end, or as its ending. In transformers names are regular expressions; here only
``.*`` is supported.
"""

import re

HEAD = "lm_head"
_LINEARS = (
    *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
_PLAIN = re.compile(r"(?:[A-Za-z0-9_.]|\.\*){1,200}")
_MOST_STARS = 4


def is_plain(name: str) -> bool:
    """Whether a name has only letters, digits, ``_``, ``.`` and at most four ``.*``; others may be slow to match."""
    return _PLAIN.fullmatch(name) is not None and name.count("*") <= _MOST_STARS


def is_kept(names: list[str], module: str) -> bool:
    """Whether the list keeps a module dense. names: must be plain (``is_plain``).

    >>> is_kept(["lm_head", "layers.1"], "model.layers.1.mlp.up_proj"), is_kept(["model.layers.1"], "model.layers.11.x")
    (False, False)
    >>> is_kept(["model.layers.1"], "model.layers.1.mlp.up_proj"), is_kept(["up_proj"], "model.layers.1.mlp.up_proj")
    (True, True)
    """
    found = (re.match(rf"(?:{name})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(name) for name in names)
    return any(found)


def first_dense(names: list[str], layers: int) -> str | None:
    """The first linear of the layers that the list keeps dense; None if all are ternary."""
    modules = (f"model.layers.{layer}.{linear}" for layer in range(layers) for linear in _LINEARS)
    return next((module for module in modules if is_kept(names, module)), None)
