"""What a block program is compiled for, and the ways of block diffusion that it can do, by name."""

from dataclasses import dataclass, replace

from tritgold import options as shared
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.option_values import is_count, real_number
from tritgold_xla.runtime.chunks import CHUNKS

# Passes that can have a threshold of their own, the last one's being that of all that follow.
THRESHOLDS = 3


@dataclass(frozen=True)
class BlockOptions:
    """How a block of masks becomes text: the golden ``tritgold.decode.Diffusion``, of which this is what compiles.

    causal: tokens see what is before them, and a block is kept by the next one's first pass; else they see their own
    block of absolute positions whole, and a pass of its own keeps it. block, sub_block: None for the model's own block,
    and for a block that is decided at once. thresholds: one to THRESHOLDS, of the first pass, the second ...; the last
    for every other. max_passes: of a block. mask: None for the model's own.
    """

    causal: bool
    thresholds: tuple[float, ...]
    block: int | None = None
    sub_block: int | None = None
    max_passes: int | None = None
    mask: int | None = None


# What a program can be compiled for: a cached prefix, and nothing seen of blocks to come.
PRESETS = tuple(name for name, p in shared.PRESETS.items() if p.attention != "full" and p.cache == "prefix")


def preset(name: str, threshold: float = shared.THRESHOLD, **changes: int | None) -> BlockOptions:
    """The options of this name, as the golden preset of the same name has them. changes: fields of ``BlockOptions``.

    Raises ConfigError: ``unknown-preset``; ``threshold`` for one that is not from 0 to 1.

    >>> preset("adaptive", 0.9).thresholds, preset("iterative", 0.5, block=16).block
    ((0.5, 0.7, 0.9), 16)
    """
    if name not in PRESETS:
        raise ConfigError(
            "the XLA engine has no such way to decode", kind="unknown-preset", got=name, expected=", ".join(PRESETS)
        )
    if not 0 <= real_number(threshold) <= 1:
        raise ConfigError("is not usable", kind="threshold", thing="threshold", got=repr(threshold), expected="0 to 1")
    p = shared.PRESETS[name]
    last = threshold if p.threshold is None else p.threshold
    thresholds = (*(max(least, last - less) for least, less in p.bold), last)
    made = BlockOptions(p.attention == "causal", thresholds, sub_block=p.sub_block, max_passes=p.max_passes)
    return replace(made, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class BlockProgram:
    """The static facts of one compiled program. eos: ids that end a sequence."""

    causal: bool
    block: int
    sub_block: int
    max_passes: int
    mask: int
    eos: tuple[int, ...]


def resolved(options: BlockOptions, config: ModelConfig) -> BlockProgram:
    """What options and model together say.

    Raises ConfigError: ``no-diffusion`` where nobody names a mask or a block, ``mask-id`` for one outside the
    vocabulary or an end of sequence, ``block``, ``sub-block`` and ``max-passes`` for sizes that are not usable,
    ``threshold``, ``diffusion-option`` for a limit of passes with smaller sub-blocks.
    """
    mask = config.mask if options.mask is None else options.mask
    block = config.block if options.block is None else options.block
    if mask is None or block is None:
        raise ConfigError(
            "is no block-diffusion model",
            kind="no-diffusion",
            thing="config",
            hint="bd_size and mask_token_id in config.json make a model one of block diffusion",
        )
    sub_block = block if options.sub_block is None else options.sub_block
    if not 1 <= len(options.thresholds) <= THRESHOLDS or not all(0 <= real_number(t) <= 1 for t in options.thresholds):
        raise _bad("threshold", "thresholds", options.thresholds, f"1 to {THRESHOLDS} of them, each from 0 to 1")
    if not is_count(mask, 0, config.vocab - 1) or mask in config.eos:
        raise _bad("mask-id", "mask", mask, f"an id below {config.vocab} that ends no sequence")
    if not is_count(block, 1, config.context):
        raise _bad("block", "block", block, f"1 to {config.context}, the positions of the model")
    if options.causal and 2 * block > CHUNKS[-1]:
        raise _bad("block", "block", block, f"1 to {CHUNKS[-1] // 2}: a causal pass writes two blocks, at most a chunk")
    if not is_count(sub_block, 1) or block % sub_block:
        raise _bad("sub-block", "sub_block", sub_block, f"a divisor of {block}")
    # As the golden decoder says it: a limit is a whole block's.
    if options.max_passes is not None and sub_block != block:
        raise _bad("diffusion-option", "max_passes", options.max_passes, "sub-blocks as large as the block")
    if options.causal and sub_block != block:
        raise _bad("sub-block", "sub_block", sub_block, f"{block}: here a causal pass decides over the whole block")
    # Each pass decides a token, so one more than the block has never stops one.
    passes = block + 1 if options.max_passes is None else options.max_passes
    if not is_count(passes, 1):
        raise _bad("max-passes", "max_passes", passes, "1 or more")
    return BlockProgram(options.causal, block, sub_block, passes, mask, config.eos)


def _bad(kind: str, thing: str, got: object, expected: str) -> ConfigError:
    return ConfigError("is not usable", kind=kind, thing=thing, got=repr(got), expected=expected)
