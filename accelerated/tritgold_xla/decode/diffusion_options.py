"""The options for which a block program is compiled, and the block-diffusion presets that it supports."""

from dataclasses import dataclass, replace
from typing import Any

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
    used for all further passes. max_passes: of a block. mask: None for the model's. cache: ``prefix``: a pass reads the
    block; ``dual``: most passes read the sub-block only, which is approximate unless causal (Fast-dLLM v2's DualCache).
    """

    causal: bool
    thresholds: tuple[float, ...]
    block: int | None = None
    sub_block: int | None = None
    max_passes: int | None = None
    mask: int | None = None
    cache: shared.CachePolicy = "prefix"


# A program supports attention that does not see later blocks.
PRESETS = tuple(name for name, p in shared.PRESETS.items() if p.attention != "full")


def preset(name: str, threshold: float = shared.THRESHOLD, **changes: Any) -> BlockOptions:
    """The options of the golden preset of the same name. changes: fields of ``BlockOptions``.

    Raises ConfigError: ``unknown-preset``; ``threshold`` for one that is not from 0 to 1; ``diffusion-option`` for an
    unknown field.

    >>> preset("adaptive", 0.9).thresholds, preset("iterative", 0.5, block=16).block
    ((0.5, 0.7, 0.9), 16)
    """
    if name not in PRESETS:
        raise ConfigError(
            "the XLA engine lacks this decode method", kind="unknown-preset", got=name, expected=", ".join(PRESETS)
        )
    for field in changes:
        if field not in BlockOptions.__dataclass_fields__:
            raise shared.not_usable("diffusion-option", "option", field, ", ".join(BlockOptions.__dataclass_fields__))
    p = shared.PRESETS[name]
    causal, thresholds = p.attention == "causal", p.thresholds(threshold)
    made = BlockOptions(causal, thresholds, sub_block=p.sub_block, max_passes=p.max_passes, cache=p.cache)
    return replace(made, **changes)


@dataclass(frozen=True)
class BlockProgram:
    """The static arguments of one compiled program. eos: ids that end a sequence. dual: cache ``dual``."""

    causal: bool
    block: int
    sub_block: int
    max_passes: int
    mask: int
    eos: tuple[int, ...]
    dual: bool = False

    @property
    def windows(self) -> tuple[int, int]:
        """Positions that a pass reads where it must read more than its sub-block, and those that all others read.

        Causal: the tokens decided since the previous sub-block was read, and the sub-block; the sub-block and the token
        before it. Otherwise: the block; with cache ``dual`` the sub-block.
        """
        if self.causal:
            return 2 * self.sub_block, self.sub_block + 1
        return self.block, self.sub_block if self.dual else self.block


def resolved(options: BlockOptions, config: ModelConfig) -> BlockProgram:
    """The program for these options and this model.

    Raises ConfigError as ``tritgold.options.Sizes.of`` does, ``threshold`` if there are not 1 to THRESHOLDS of them,
    ``diffusion-option`` for a cache that is neither ``prefix`` nor ``dual``, and ``block`` and ``sub-block`` for sizes
    that a causal pass here does not support.
    """
    sizes = shared.Sizes.of(config, options.block, options.sub_block, options.mask, options.max_passes)
    if not 1 <= len(options.thresholds) <= THRESHOLDS or not all(0 <= real_number(t) <= 1 for t in options.thresholds):
        expected = f"1 to {THRESHOLDS} of them, each from 0 to 1"
        raise shared.not_usable("threshold", "thresholds", options.thresholds, expected)
    if options.cache not in ("prefix", "dual"):
        expected = "prefix or dual: the XLA engine keeps the text before the block; the golden model can read it again"
        raise shared.not_usable("diffusion-option", "cache", options.cache, expected)
    dual, parted = options.cache == "dual", sizes.sub_block != sizes.block
    if options.causal and parted and not dual:
        expected = f"{sizes.block}, or cache dual: without it a causal pass here decides over the whole block"
        raise shared.not_usable("sub-block", "sub_block", sizes.sub_block, expected)
    if options.causal and 2 * sizes.sub_block > CHUNKS[-1]:
        kind, thing = ("sub-block", "sub_block") if parted else ("block", "block")
        expected = f"1 to {CHUNKS[-1] // 2}: a causal pass writes two of them, at most a chunk"
        raise shared.not_usable(kind, thing, sizes.sub_block, expected)
    # Each pass decides at least one token, so block + 1 passes are never reached.
    passes = sizes.block + 1 if options.max_passes is None else options.max_passes
    return BlockProgram(options.causal, sizes.block, sizes.sub_block, passes, sizes.mask, config.eos, dual)
