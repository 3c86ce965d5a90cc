"""The block-diffusion modes of known engines, by name, each without its engine's defects.

    fast-dllm-v2       blocks at multiples of 32, sub-blocks of 8, threshold 0.9, a commit pass; arXiv 2509.26328, as
                       released by default (use_block_cache=False)
    fast-dllm-v2-dual  the same with the sub-block cache (the paper's DualCache): cheaper passes, approximate
    greedy             causal; each block in one pass
    iterative          causal; at most 10 passes over the whole block, then the most probable predictions; threshold 0.9
    adaptive           the same, but the first two passes have lower thresholds
    small-block        causal; sub-blocks of 8; nothing after the sub-block is read
    llada              full attention, no token shift, a probability equal to the threshold is enough; arXiv 2505.22618
    dream              the same with token shift

The causal ones are the modes of a llama.cpp server, which has the defects D1 to D7 of ``diffusion_options``.
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
    """The options of the preset ``name``. threshold: of its rule; greedy ignores it. changes: fields of ``Diffusion``.

    Raises ConfigError ``unknown-preset``, ``diffusion-option`` for an unknown field, ``threshold``.

    >>> preset("adaptive", 0.9).rule, preset("fast-dllm-v2", sub_block=4).sub_block
    (Thresholds(values=(0.5, 0.7, 0.9), inclusive=False), 4)
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError("is not a decode method", kind="unknown-preset", got=name, expected=", ".join(PRESETS))
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
