"""Names and values of decoding options that the golden model and the JAX engine share: data only, no arithmetic."""

from dataclasses import dataclass
from typing import Literal

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.option_values import is_count, real_number

Attention = Literal["block", "causal", "full"]
CachePolicy = Literal["none", "prefix", "dual"]
Commit = Literal["pass", "merged", "none"]
Noise = Literal["none", "first", "nucleus", "gumbel"]

THRESHOLD = 0.9  # in the released chat program and in the server's documentation


@dataclass(frozen=True)
class Preset:
    """A block-diffusion mode of an engine, without that engine's defects.

    The fields are those of ``tritgold.decode.diffusion_options.Diffusion``, and those of its rule. bold: for each of
    the first passes (at least, less); its threshold is max(at least, given threshold - less). threshold: for all
    passes, instead of the given one. inclusive: a probability equal to the threshold is enough.
    """

    attention: Attention = "block"
    sub_block: int | None = None
    cache: CachePolicy = "prefix"
    commit: Commit = "pass"
    shift: bool = True
    max_passes: int | None = None
    noise: Noise = "none"
    bold: tuple[tuple[float, float], ...] = ()
    threshold: float | None = None
    inclusive: bool = False

    def thresholds(self, given: float) -> tuple[float, ...]:
        """The threshold of the first pass, of the second ...; the last one is used for all further passes.

        given: if it is below 0.7, the first thresholds may be higher than it. Raises ConfigError (``threshold``) if it
        is not a number from 0 to 1.

        >>> PRESETS["adaptive"].thresholds(0.9), PRESETS["adaptive"].thresholds(0.6), PRESETS["greedy"].thresholds(0.9)
        ((0.5, 0.7, 0.9), (0.5, 0.7, 0.6), (0.0,))
        """
        if not 0 <= real_number(given) <= 1:
            raise bad_threshold(given)
        last = given if self.threshold is None else self.threshold
        return (*(max(least, last - less) for least, less in self.bold), last)


@dataclass(frozen=True)
class Sizes:
    """The mask id and the sizes of block diffusion, determined by model and options and checked."""

    mask: int
    block: int
    sub_block: int

    @classmethod
    def of(
        cls, config: ModelConfig, block: int | None, sub_block: int | None, mask: int | None, max_passes: int | None
    ) -> "Sizes":
        """block, mask: None for the model's; sub_block None: the whole block; max_passes None: no limit.

        Raises ConfigError: ``no-diffusion`` if neither model nor options give a mask and a block; ``mask-id`` for one
        outside the vocabulary or an end of sequence; ``block``, ``sub-block``, ``max-passes`` for impossible sizes;
        ``diffusion-option`` for max_passes with sub-blocks smaller than the block.
        """
        mask = config.mask if mask is None else mask
        block = config.block if block is None else block
        if mask is None or block is None:
            hint = (
                "bd_size and mask_token_id in config.json make a model one of block diffusion; or name both yourself: "
            )
            raise ConfigError(
                "is not a block-diffusion model",
                kind="no-diffusion",
                got=f"block {block}, mask {mask}",
                expected="both",
                hint=hint + "Diffusion(block=8, mask=5), --block-size 8 --mask-token-id 5",
            )
        if not is_count(mask, 0, config.vocab - 1) or mask in config.eos:
            raise not_usable("mask-id", "mask", mask, f"an id below {config.vocab} that ends no sequence")
        if not is_count(block, 1, config.context):
            raise not_usable("block", "block", block, f"1 to {config.context}, the positions of the model")
        sub_block = block if sub_block is None else sub_block
        if not is_count(sub_block, 1) or block % sub_block:
            raise not_usable("sub-block", "sub_block", sub_block, f"a divisor of {block}")
        if max_passes is not None and not is_count(max_passes, 1):
            raise not_usable("max-passes", "max_passes", max_passes, "1 or more")
        if max_passes is not None and sub_block != block:
            raise not_usable("diffusion-option", "max_passes", max_passes, "sub-blocks as large as the block")
        return cls(mask, block, sub_block)


def not_usable(kind: str, thing: str, got: object, expected: str) -> ConfigError:
    """The error for an option that is not usable."""
    shown = got if isinstance(got, int | float | str) else repr(got)
    return ConfigError("is not usable", kind=kind, thing=thing, got=shown, expected=expected)


def bad_threshold(got: object) -> ConfigError:
    """The error for a value that is not a threshold, or a tuple with such a value."""
    shown = repr(got) if got != () else "none"
    return ConfigError("is not usable", kind="threshold", thing="threshold", got=shown, expected="numbers from 0 to 1")


ADAPTIVE = ((0.5, 0.4), (0.7, 0.2))  # ``bold`` of the mode adaptive
PRESETS = {
    "fast-dllm-v2": Preset(sub_block=8, noise="nucleus"),
    "fast-dllm-v2-dual": Preset(sub_block=8, noise="nucleus", cache="dual"),
    "greedy": Preset("causal", commit="merged", max_passes=1, noise="first", threshold=0.0),
    "iterative": Preset("causal", commit="merged", max_passes=10, noise="first"),
    "adaptive": Preset("causal", commit="merged", max_passes=10, noise="first", bold=ADAPTIVE),
    "small-block": Preset("causal", commit="merged", sub_block=8, noise="first", cache="dual"),
    "llada": Preset("full", commit="none", cache="none", noise="gumbel", shift=False, inclusive=True),
    "dream": Preset("full", commit="none", cache="none", noise="gumbel", inclusive=True),
}
DECODE = ("ar", *PRESETS)  # ar: autoregressive, one token per pass
KV_SCHEMES = (
    "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "fake_fp8", "q8_0", "q5_0", "q4_1", "q4_0", "kivi2", "kivi4",
    "affine", "hadamard", "turboquant", "a4_8", "split",
)  # fmt: skip
