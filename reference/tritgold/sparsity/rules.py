"""The sparsity rules by name: ``sparsity_rule(name, **options)`` makes one."""

from dataclasses import fields
from typing import Any

from tritgold.errors import ConfigError
from tritgold.sparsity.a4_8 import A48
from tritgold.sparsity.activation import Dense, Threshold, TopK
from tritgold.sparsity.adaptive import Adaptive, Entropy
from tritgold.sparsity.attention import AttentionDynamic, AttentionThreshold, AttentionTopK, AttentionWindow
from tritgold.sparsity.base import SparsityRule
from tritgold.sparsity.q_sparse import QSparse
from tritgold.sparsity.zero_skipping import ZeroSkipping

_ACTIVATIONS: tuple[type[SparsityRule], ...] = (Dense, Threshold, TopK, Adaptive, Entropy, QSparse, A48, ZeroSkipping)
_ATTENTION: tuple[type[SparsityRule], ...] = (AttentionTopK, AttentionThreshold, AttentionWindow, AttentionDynamic)
SPARSITY_RULES: dict[str, type[SparsityRule]] = {rule.name: rule for rule in (*_ACTIVATIONS, *_ATTENTION)}


def sparsity_rule(name: str, **options: Any) -> SparsityRule:
    """The rule called ``name``, one of SPARSITY_RULES. options: the fields of its class.

    Raises ConfigError for an unknown name (``unknown-sparsity``), and for an unknown option or an impossible value
    (``sparsity-option``).

    >>> sparsity_rule("top_k", keep=0.7)
    TopK(keep=0.7)
    """
    if not isinstance(name, str) or name not in SPARSITY_RULES:
        known = ", ".join(SPARSITY_RULES)
        raise ConfigError("no such sparsity rule", kind="unknown-sparsity", got=repr(name), expected=known)
    rule: Any = SPARSITY_RULES[name]
    known_options = [field.name for field in fields(rule)]
    for option in options:
        if option not in known_options:
            expected = ", ".join(known_options) or "none"
            raise ConfigError(
                f"{name} has no such option", kind="sparsity-option", thing=name, got=repr(option), expected=expected
            )
    switches = {field.name for field in fields(rule) if isinstance(field.default, bool)}
    for option in switches & options.keys():  # otherwise any text, "false" too, would count as true
        if not isinstance(options[option], bool):
            thing, got = f"{name}: {option}", repr(options[option])
            raise ConfigError("is not usable", kind="sparsity-option", thing=thing, got=got, expected="true or false")
    made: SparsityRule = rule(**options)
    return made
