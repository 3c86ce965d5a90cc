"""The ways of block diffusion that engines have, by name, each without its engine's defects.

    fast-dllm-v2       blocks at multiples of 32, sub-blocks of 8, threshold 0.9, a commit pass; arXiv 2509.26328, as
                       released by default (use_block_cache=False)
    fast-dllm-v2-dual  the same with the sub-block cache (the paper's DualCache): cheaper passes, approximate
    greedy             causal; a block in one pass
    iterative          causal; passes over a whole block, at most 10, then the surest predictions; threshold 0.9
    adaptive           the same with two bolder passes first
    small-block        causal; sub-blocks of 8, read no further than to their end
    llada              full attention, no token shift, threshold reached rather than passed; arXiv 2505.22618
    dream              the same with token shift

The causal ones are those of a llama.cpp server; there they come with the defects D1 to D7 of ``diffusion_options``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.unmasking import Thresholds, bad_threshold, progressive
from tritgold.errors import ConfigError
from tritgold.option_values import real_number

THRESHOLD = 0.9  # of the released chat program and of the server's notes


def _v2(threshold: float) -> Diffusion:
    return Diffusion(sub_block=8, rule=Thresholds((threshold,)), noise="nucleus")


def _server(threshold: float) -> Diffusion:
    rule = Thresholds((threshold,))
    return Diffusion(attention="causal", commit="merged", rule=rule, max_passes=10, noise="first")


def _v1(threshold: float) -> Diffusion:
    rule = Thresholds((threshold,), inclusive=True)
    return Diffusion(attention="full", commit="none", cache="none", shift=False, rule=rule, noise="gumbel")


_PRESETS: dict[str, Callable[[float], Diffusion]] = {
    "fast-dllm-v2": _v2,
    "fast-dllm-v2-dual": lambda threshold: replace(_v2(threshold), cache="dual"),
    "greedy": lambda threshold: replace(_server(threshold), rule=Thresholds((0.0,)), max_passes=1),
    "iterative": _server,
    "adaptive": lambda threshold: replace(_server(threshold), rule=progressive(threshold)),
    "small-block": lambda threshold: replace(_server(threshold), sub_block=8, cache="dual", max_passes=None),
    "llada": _v1,
    "dream": lambda threshold: replace(_v1(threshold), shift=True),
}
PRESETS = tuple(_PRESETS)


def preset(name: str, threshold: float = THRESHOLD, **changes: Any) -> Diffusion:
    """The options of this name. threshold: of its rule; greedy has none. changes: fields of ``Diffusion``.

    Raises ConfigError: ``unknown-preset``, ``diffusion-option`` for a field that does not exist, ``threshold``.

    >>> preset("adaptive", 0.9).rule, preset("fast-dllm-v2", sub_block=4).sub_block
    (Thresholds(values=(0.5, 0.7, 0.9), inclusive=False), 4)
    """
    if not isinstance(name, str) or name not in _PRESETS:
        raise ConfigError("no such way to decode", kind="unknown-preset", got=name, expected=", ".join(PRESETS))
    if not 0 <= real_number(threshold) <= 1:
        raise bad_threshold(threshold)
    options = _PRESETS[name](threshold)
    for field in changes:
        if field not in Diffusion.__dataclass_fields__:
            expected = ", ".join(Diffusion.__dataclass_fields__)
            raise ConfigError("no such option", kind="diffusion-option", got=field, expected=expected)
    return replace(options, **changes)
