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

from dataclasses import replace
from typing import Any

from tritgold import options as shared
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.unmasking import Thresholds
from tritgold.errors import ConfigError
from tritgold.options import THRESHOLD

PRESETS = tuple(shared.PRESETS)


def preset(name: str, threshold: float = THRESHOLD, **changes: Any) -> Diffusion:
    """The options of this name. threshold: of its rule; greedy has none. changes: fields of ``Diffusion``.

    Raises ConfigError: ``unknown-preset``, ``diffusion-option`` for a field that does not exist, ``threshold``.

    >>> preset("adaptive", 0.9).rule, preset("fast-dllm-v2", sub_block=4).sub_block
    (Thresholds(values=(0.5, 0.7, 0.9), inclusive=False), 4)
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError("no such way to decode", kind="unknown-preset", got=name, expected=", ".join(PRESETS))
    p = shared.PRESETS[name]
    thresholds = p.thresholds(threshold)
    for field in changes:
        if field not in Diffusion.__dataclass_fields__:
            expected = ", ".join(Diffusion.__dataclass_fields__)
            raise ConfigError("no such option", kind="diffusion-option", got=field, expected=expected)
    made = Diffusion(
        attention=p.attention,
        sub_block=p.sub_block,
        rule=Thresholds(thresholds, p.inclusive),
        cache=p.cache,
        commit=p.commit,
        shift=p.shift,
        max_passes=p.max_passes,
        noise=p.noise,
    )
    return replace(made, **changes)
