"""``modules_to_not_convert`` of a quantization_config, as transformers reads it: which linears it keeps dense.

Source: transformers 5.24 ``quantizers/quantizers_utils.py`` (should_convert_module) and ``quantizers/base.py``
(get_modules_to_not_convert): a list replaces the default, which keeps ``lm_head``; a name matches a module from the
start up to a dot, or as its ending; names are regular expressions, of which ``.*`` is all that is read here.
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
    """Whether a name of the list is plain enough to be matched: another expression may take forever."""
    return _PLAIN.fullmatch(name) is not None and name.count("*") <= _MOST_STARS


def is_kept(names: list[str], module: str) -> bool:
    """Whether the list, of plain names, keeps a module dense.

    >>> is_kept(["lm_head", "layers.1"], "model.layers.1.mlp.up_proj"), is_kept(["model.layers.1"], "model.layers.11.x")
    (False, False)
    >>> is_kept(["model.layers.1"], "model.layers.1.mlp.up_proj"), is_kept(["up_proj"], "model.layers.1.mlp.up_proj")
    (True, True)
    """
    found = (re.match(rf"(?:{name})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(name) for name in names)
    return any(found)


def first_dense(names: list[str], layers: int) -> str | None:
    """The first linear of the layers that the list keeps dense; None where all stay ternary."""
    modules = (f"model.layers.{layer}.{linear}" for layer in range(layers) for linear in _LINEARS)
    return next((module for module in modules if is_kept(names, module)), None)
