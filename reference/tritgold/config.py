"""ModelConfig: what the arithmetic needs to know of a model, and not a field more.

Reading config.json or GGUF metadata into it is the business of ``formats.hf_config`` and ``formats.gguf_config``.
"""

from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from tritgold.errors import ConfigError, ContextError
from tritgold.rope_scaling import RopeScaling

MAX_IN = 132_104  # 127 x this is below 2**24: an int8 x trit sum is exact even in float32, in any order
MAX_CONTEXT = 1 << 20  # positions whose RoPE angles the golden sin and cos reduce exactly

Activation = Literal["relu2", "silu", "gelu_tanh"]
ScaleRule = Literal["multiply", "divide"]
ACTIVATIONS: tuple[Activation, ...] = ("relu2", "silu", "gelu_tanh")
SCALES = ("embedding_scale", "residual_scale", "logit_divisor", "query_scale")


@dataclass(frozen=True)
class ModelConfig:
    """Shape and rules of a decoder-only ternary model.

    vocab, hidden, inter, layers, heads, kv_heads, head_dim: sizes; ``inter`` is the FFN's inner width.
    context: positions the model has. norm_eps, rope_theta: rounded to float32, as GGUF stores and engines hold
        them, so that one model read from two containers is one model.
    activation: the gate's function, ``relu2`` (BitNet 2B-4T), ``silu`` (Llama style, 1bitLLM) or ``gelu_tanh`` (Gemma).
    sub_norms: RMSNorms before o and down (BitNet); False drops them from the graph (Llama style).
    tied_head: logits come from the embedding matrix.
    scale_rule: how a weight scale is applied, ``multiply`` (autobitlinear, GGUF) or ``divide`` (bitlinear).
    bos, eos: token ids, where the checkpoint names them; eos may be several.
    mask, block: of a block-diffusion model, the id that stands for a token not yet decided and the tokens of a block;
        both or neither. They decide how one decodes and change no arithmetic.

    What follows is of some architectures only (``architectures``), and has the value that changes nothing elsewhere.

    qkv_bias: q, k and v add a vector after their scales (Qwen2). qk_norms: RMSNorm over each head of q and of k, before
        RoPE (Qwen3, Gemma 3). post_norms: RMSNorms of what attention and FFN give, before it is added (Gemma 3).
    rope_scaling: stretched frequencies; of the layers that see everything where ``local_rope_theta`` is set.
    window: a token sees itself and the ``window - 1`` before it; None: all. full_layers: numbers of layers that see
        all the same. local_rope_theta: theta of the layers that have the window, None for that of all.
    embedding_scale, residual_scale: float32 factors of the embedding, and of what is added to the residual stream.
    logit_divisor: float32, divides what the head reads (MiniCPM; Granite divides the logits, which comes to the same).
    query_scale: float32 factor of q after RoPE, for scores that are not divided by sqrt(head_dim): sqrt(head_dim) times
        what multiplies them instead (Granite, Gemma 3 27B).
    """

    vocab: int
    hidden: int
    inter: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_eps: float
    rope_theta: float
    activation: Activation
    sub_norms: bool
    tied_head: bool
    scale_rule: ScaleRule
    bos: int | None = None
    eos: tuple[int, ...] = ()
    mask: int | None = None
    block: int | None = None
    qkv_bias: bool = False
    qk_norms: bool = False
    post_norms: bool = False
    rope_scaling: RopeScaling | None = None
    window: int | None = None
    full_layers: tuple[int, ...] = ()
    local_rope_theta: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_divisor: float = 1.0
    query_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("vocab", "hidden", "inter", "layers", "heads", "kv_heads", "head_dim", "context"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise _bad(name, value, "a positive integer")
        widths = {"hidden": self.hidden, "inter": self.inter, "heads * head_dim": self.q_width}
        for name, width in widths.items():
            if width > MAX_IN:
                raise _bad(name, width, f"at most {MAX_IN}, where int8 x trit sums stay exact in float32")
        if self.context > MAX_CONTEXT:
            raise _bad("context", self.context, f"at most {MAX_CONTEXT}")
        if self.heads % self.kv_heads:
            raise _bad("kv_heads", self.kv_heads, f"a divisor of heads = {self.heads}")
        if self.head_dim % 2:
            raise _bad("head_dim", self.head_dim, "an even number (RoPE turns pairs)")
        for name in ("norm_eps", "rope_theta", "local_rope_theta", *SCALES):
            if getattr(self, name) is not None:
                with np.errstate(over="ignore", under="ignore"):
                    object.__setattr__(self, name, float(np.float32(getattr(self, name))))
        if not 0 < self.norm_eps < 1:
            raise _bad("norm_eps", self.norm_eps, "between 0 and 1")
        for name in ("rope_theta", "local_rope_theta"):
            if (theta := getattr(self, name)) is not None and not 1 <= theta < 1e12:
                raise _bad(name, theta, "between 1 and 1e12")
        for name in SCALES:
            if not 0 < getattr(self, name) < np.inf:
                raise _bad(name, getattr(self, name), "a positive finite float32")
        if self.activation not in ACTIVATIONS:
            raise _bad("activation", self.activation, " or ".join(ACTIVATIONS))
        if self.scale_rule not in ("multiply", "divide"):
            raise _bad("scale_rule", self.scale_rule, "multiply or divide")
        if (self.mask is None) is not (self.block is None):
            raise _bad("mask, block", f"{self.mask}, {self.block}", "both, or neither")
        if self.block is not None and (type(self.block) is not int or self.block < 1):
            raise _bad("block", self.block, "a positive integer")
        self._check_attention()
        if self.mask in self.eos:
            raise _bad("mask", self.mask, "no end-of-sequence token")
        for name, token in [("bos", self.bos), ("mask", self.mask), *(("eos", e) for e in self.eos)]:
            if token is not None and (type(token) is not int or not 0 <= token < self.vocab):
                raise _bad(name, token, f"a token id below vocab = {self.vocab}")

    def _check_attention(self) -> None:
        """Rope scaling and window; JSON's objects and lists become what they stand for."""
        if isinstance(self.rope_scaling, dict):
            object.__setattr__(self, "rope_scaling", RopeScaling(**self.rope_scaling))
        for name in ("eos", "full_layers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        divisors = self.rope_scaling and len(self.rope_scaling.divisors)
        if divisors not in (None, self.head_dim // 2):
            raise _bad("rope_scaling", f"{divisors} divisors", f"head_dim / 2 = {self.head_dim // 2}")
        if self.window is None:
            if self.full_layers or self.local_rope_theta is not None:
                raise _bad("full_layers, local_rope_theta", "set", "a window")
            return
        if type(self.window) is not int or self.window < 1:
            raise _bad("window", self.window, "a positive integer")
        if self.block is not None:
            raise _bad("window", self.window, "None beside a diffusion block")
        if not all(type(n) is int and 0 <= n < self.layers for n in self.full_layers):
            raise _bad("full_layers", self.full_layers, f"layers below {self.layers}")

    def window_of(self, layer: int) -> int | None:
        """How many positions a token of this layer sees at most, its own among them; None: all."""
        return None if layer in self.full_layers else self.window

    def rope_of(self, layer: int) -> tuple[float] | tuple[float, RopeScaling]:
        """theta of RoPE in this layer, and its scaling where it has one."""
        if self.local_rope_theta is not None and self.window_of(layer) is not None:
            return (self.local_rope_theta,)
        return (self.rope_theta,) if self.rope_scaling is None else (self.rope_theta, self.rope_scaling)

    @property
    def q_width(self) -> int:
        """Width of q and of the attention mix: heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of k and of v: kv_heads x head_dim."""
        return self.kv_heads * self.head_dim

    def linear_shape(self, name: str) -> tuple[int, int]:
        """(out, in) of the linear weight ``q k v o gate up down``.

        >>> tiny = ModelConfig(vocab=9, hidden=8, inter=12, layers=1, heads=2, kv_heads=1, head_dim=4, context=16,
        ...     norm_eps=1e-5, rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True,
        ...     scale_rule="multiply")
        >>> tiny.linear_shape("k"), tiny.linear_shape("down")
        ((4, 8), (8, 12))
        """
        return {
            "q": (self.q_width, self.hidden),
            "k": (self.kv_width, self.hidden),
            "v": (self.kv_width, self.hidden),
            "o": (self.hidden, self.q_width),
            "gate": (self.inter, self.hidden),
            "up": (self.inter, self.hidden),
            "down": (self.hidden, self.inter),
        }[name]

    def vector_widths(self) -> dict[str, int]:
        """Width of each norm's gain and each bias that a layer of this model has, by its name in ``LayerWeights``."""
        widths = {"attn_norm": self.hidden, "ffn_norm": self.hidden}
        if self.sub_norms:
            widths |= {"attn_sub_norm": self.q_width, "ffn_sub_norm": self.inter}
        if self.qk_norms:
            widths |= {"q_norm": self.head_dim, "k_norm": self.head_dim}
        if self.post_norms:
            widths |= {"attn_post_norm": self.hidden, "ffn_post_norm": self.hidden}
        if self.qkv_bias:
            widths |= {"q_bias": self.q_width, "k_bias": self.kv_width, "v_bias": self.kv_width}
        return widths

    def as_dict(self) -> dict[str, Any]:
        """The fields, for reports, for engines and for the model hash; without those of other architectures.

        A field that has a default and holds it is left out, ``bos`` to ``block`` apart: a reader of before who meets a
        field that it does not know must refuse the model.
        """
        ours = {f.name for f in fields(self) if f.name in OPTIONAL and getattr(self, f.name) == f.default}
        return {name: value for name, value in asdict(self).items() if name not in ours}


OPTIONAL = tuple(
    f.name for f in fields(ModelConfig) if f.name not in ("bos", "eos", "mask", "block") and f.default is not MISSING
)


def check_tokens(tokens: Sequence[int] | np.ndarray, config: ModelConfig, past: int = 0) -> np.ndarray:
    """The tokens as int64, or a ContextError saying what is wrong with them, before anything is computed.

    past: positions filled before them. Kinds: ``no-tokens``, ``token-id``, ``context-length``.
    """
    ids = np.asarray(tokens)
    huge = ids.dtype.kind == "O" and ids.ndim == 1 and all(type(token) is int for token in ids)  # beyond 64 bits
    if ids.ndim != 1 or ids.size == 0 or not (ids.dtype.kind in "iu" or huge):
        got = "none" if ids.size == 0 else f"{ids.dtype} {list(ids.shape)}"
        raise ContextError("tokens are a list of at least one integer id", kind="no-tokens", got=got)
    outside = np.flatnonzero((ids < 0) | (ids >= config.vocab))
    if outside.size:
        raise ContextError(
            f"token {outside[0]} is outside the vocabulary",
            kind="token-id",
            got=_shown_id(int(ids[outside[0]])),
            expected=f"0 to {config.vocab - 1}",
        )
    if past + ids.size > config.context:
        raise ContextError(
            "more tokens than the model has positions",
            kind="context-length",
            got=f"{past + ids.size} tokens",
            expected=f"at most {config.context}",
            hint="shorten the prompt; nothing is cut off silently",
        )
    return ids.astype(np.int64)


def _shown_id(token: int) -> int | str:
    return token if token.bit_length() <= 64 else f"an integer of {token.bit_length()} bits"


def _bad(name: str, got: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} is not usable", kind="config-value", thing=name, got=got, expected=expected)
