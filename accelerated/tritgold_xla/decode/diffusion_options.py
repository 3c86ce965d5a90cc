"""The options for which a block program is compiled, and the block-diffusion presets that it supports."""

from dataclasses import dataclass, replace

from tritgold import options as shared
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.option_values import real_number
from tritgold_xla.runtime.chunks import CHUNKS

# Number of thresholds, for the first passes; the last threshold is used for all further passes.
THRESHOLDS = 3


@dataclass(frozen=True)
class BlockOptions:
    """How a block of masks becomes text: the options of the golden ``Diffusion`` that this engine supports.

    causal: tokens see earlier tokens, and a block is stored in the cache by the next block's first pass; if False,
    tokens see their whole block (by absolute position), and an additional pass stores it. block: None for the model's;
    sub_block: None for the whole block. thresholds: one to THRESHOLDS, of the first pass, the second ...; the last is
    used for all further passes. max_passes: of a block. mask: None for the model's.
    """

    causal: bool
    thresholds: tuple[float, ...]
    block: int | None = None
    sub_block: int | None = None
    max_passes: int | None = None
    mask: int | None = None


# A program supports a cached prefix, and attention that does not see later blocks.
PRESETS = tuple(name for name, p in shared.PRESETS.items() if p.attention != "full" and p.cache == "prefix")


def preset(name: str, threshold: float = shared.THRESHOLD, **changes: int | None) -> BlockOptions:
    """The options of the golden preset of the same name. changes: fields of ``BlockOptions``.

    Raises ConfigError: ``unknown-preset``; ``threshold`` for one that is not from 0 to 1.

    >>> preset("adaptive", 0.9).thresholds, preset("iterative", 0.5, block=16).block
    ((0.5, 0.7, 0.9), 16)
    """
    if name not in PRESETS:
        raise ConfigError(
            "the XLA engine lacks this decode method", kind="unknown-preset", got=name, expected=", ".join(PRESETS)
        )
    p = shared.PRESETS[name]
    made = BlockOptions(p.attention == "causal", p.thresholds(threshold), None, p.sub_block, p.max_passes)
    return replace(made, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class BlockProgram:
    """The static arguments of one compiled program. eos: ids that end a sequence."""

    causal: bool
    block: int
    sub_block: int
    max_passes: int
    mask: int
    eos: tuple[int, ...]


def resolved(options: BlockOptions, config: ModelConfig) -> BlockProgram:
    """The program for these options and this model.

    Raises ConfigError as ``tritgold.options.Sizes.of`` does, ``threshold`` if there are not 1 to THRESHOLDS of them,
    and ``block`` and ``sub-block`` for sizes that a causal pass here does not support.
    """
    sizes = shared.Sizes.of(config, options.block, options.sub_block, options.mask, options.max_passes)
    if not 1 <= len(options.thresholds) <= THRESHOLDS or not all(0 <= real_number(t) <= 1 for t in options.thresholds):
        expected = f"1 to {THRESHOLDS} of them, each from 0 to 1"
        raise shared.not_usable("threshold", "thresholds", options.thresholds, expected)
    if options.causal and 2 * sizes.block > CHUNKS[-1]:
        expected = f"1 to {CHUNKS[-1] // 2}: a causal pass writes two blocks, at most a chunk"
        raise shared.not_usable("block", "block", sizes.block, expected)
    if options.causal and sizes.sub_block != sizes.block:
        expected = f"{sizes.block}: here a causal pass decides over the whole block"
        raise shared.not_usable("sub-block", "sub_block", sizes.sub_block, expected)
    # Each pass decides at least one token, so block + 1 passes are never reached.
    passes = sizes.block + 1 if options.max_passes is None else options.max_passes
    return BlockProgram(options.causal, sizes.block, sizes.sub_block, passes, sizes.mask, config.eos)
