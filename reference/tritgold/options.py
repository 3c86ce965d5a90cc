"""Names and values of decoding that the golden model and the JAX engine share: data, and no arithmetic."""

from dataclasses import dataclass
from typing import Literal

Attention = Literal["block", "causal", "full"]
CachePolicy = Literal["none", "prefix", "dual"]
Commit = Literal["pass", "merged", "none"]
Noise = Literal["none", "first", "nucleus", "gumbel"]

THRESHOLD = 0.9  # of the released chat program and of the server's notes


@dataclass(frozen=True)
class Preset:
    """A way of block diffusion that an engine has, without that engine's defects.

    The fields are those of ``tritgold.decode.diffusion_options.Diffusion``, and of its rule: bold: for each of the
    first passes (at least, less): its threshold is the larger of ``at least`` and the threshold given minus ``less``.
    threshold: for all passes, whatever is given. inclusive: a probability of exactly the threshold is enough.
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


ADAPTIVE = ((0.5, 0.4), (0.7, 0.2))  # ``bold`` of the adaptive way
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
DECODE = ("ar", *PRESETS)  # ar: a token a pass
KV_SCHEMES = (
    "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "fake_fp8", "q8_0", "q5_0", "q4_1", "q4_0", "kivi2", "kivi4",
    "affine", "hadamard", "turboquant", "a4_8", "split",
)  # fmt: skip
