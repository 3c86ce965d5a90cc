"""The architectures as data: what each one's graph has, and what it is called in the files of each container.

The graph itself is built from a ``ModelConfig``, whose fields these entries set: ``graph``, ``model``, the JAX engine,
trace names, inspection and conversion ask the configuration and never for a name. A new architecture whose parts are
all there is one entry here, a row in docs/architectures.md (made of this table) and a fixture of transformers' own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritgold.config import Activation, ModelConfig
from tritgold.errors import ConfigError


@dataclass(frozen=True)
class Architecture:
    """classes: the names in ``architectures`` of a config.json, the first of which is written. model_type: beside it.

    gguf: ``general.architecture`` -> the activation that the name implies. permuted: q and k rows of such a file lie
    in interleaved-RoPE order. sub_norms, qkv_bias, qk_norms, post_norms: as in ModelConfig. windows: some layers may
    have a sliding window. scales: embedding, residual stream and logits have constant factors. query_scale: scores may
    have one other than 1 / sqrt(head_dim). gain_offset: what is
    added to the norms' gains that a safetensors file holds. hf_names: tensors that lie under other names there.
    note: for the page.
    """

    name: str
    classes: tuple[str, ...]
    model_type: str
    gguf: Mapping[str, Activation]
    permuted: bool = False
    sub_norms: bool = False
    qkv_bias: bool = False
    qk_norms: bool = False
    post_norms: bool = False
    windows: bool = False
    scales: bool = False
    query_scale: bool = False
    gain_offset: float = 0.0
    hf_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""

    def fields(self) -> dict[str, bool]:
        """The fields of a ModelConfig that the architecture decides alone."""
        return {name: getattr(self, name) for name in _DECIDED}

    def has(self, config: ModelConfig) -> bool:
        """Whether a model of this configuration is one of this architecture."""
        scaled = (config.embedding_scale, config.residual_scale, config.logit_divisor) != (1, 1, 1)
        parts = all(getattr(config, name) is value for name, value in self.fields().items())
        queries = config.query_scale == 1 or self.query_scale
        return parts and queries and scaled is self.scales and (config.window is None or self.windows)


_DECIDED = ("sub_norms", "qkv_bias", "qk_norms", "post_norms")
_GEMMA = {
    "layers.{n}.attn_post_norm": ("model.layers.{n}.post_attention_layernorm.weight",),
    "layers.{n}.ffn_norm": ("model.layers.{n}.pre_feedforward_layernorm.weight",),
    "layers.{n}.ffn_post_norm": ("model.layers.{n}.post_feedforward_layernorm.weight",),
}
ARCHITECTURES = (
    # "BitnetForCausalLM" is 1bitLLM's original remote code. Of the GGUF names "bitnet" is its SiLU model; the two
    # others are the squared-ReLU 2B-4T, whose files say nothing of it.
    Architecture(
        "bitnet",
        ("BitNetForCausalLM", "BitnetForCausalLM"),
        "bitnet",
        {"bitnet-b1.58": "relu2", "bitnet": "silu", "bitnet-25": "relu2"},
        sub_norms=True,
        note="BitNet b1.58 2B-4T and its fine-tunes; bitnet_b1_58-large, -3B, -xl",
    ),
    Architecture(
        "llama",
        ("LlamaForCausalLM",),
        "llama",
        {"llama": "silu"},
        permuted=True,
        note="Llama3-8B-1.58, Falcon3-1.58bit, Falcon-E, TriLM; squared ReLU too, where a config.json says it",
    ),
    Architecture(
        "qwen2",
        ("Qwen2ForCausalLM", "Fast_dLLM_QwenForCausalLM"),
        "qwen2",
        {"qwen2": "silu"},
        qkv_bias=True,
        windows=True,
        note="Qwen2, Qwen2.5; Fast-dLLM v2, whose blocks `bd_size` and `mask_token_id` make",
    ),
    Architecture(
        "qwen3",
        ("Qwen3ForCausalLM",),
        "qwen3",
        {"qwen3": "silu"},
        qk_norms=True,
        windows=True,
        note="Qwen3; the body of Bonsai",
    ),
    Architecture(
        "granite",
        ("GraniteForCausalLM",),
        "granite",
        {"granite": "silu"},
        permuted=True,
        scales=True,
        query_scale=True,
        note="Granite 3; `attention_multiplier` as it is",
    ),
    Architecture(
        "minicpm",
        ("MiniCPMForCausalLM",),
        "minicpm",
        {"minicpm": "silu"},
        permuted=True,
        scales=True,
        note="MiniCPM, BitCPM4; written as Granite, which transformers has and whose arithmetic is the same",
    ),
    Architecture(
        "gemma3",
        ("Gemma3ForCausalLM",),
        "gemma3_text",
        {"gemma3": "gelu_tanh"},
        qk_norms=True,
        post_norms=True,
        windows=True,
        scales=True,
        query_scale=True,
        gain_offset=1.0,
        hf_names=_GEMMA,
        note="the text model; `query_pre_attn_scalar` as it is, other than head_dim in 27B",
    ),
)
GGUF_ARCHITECTURES = {name: entry for entry in ARCHITECTURES for name in entry.gguf}


def architecture_of(config: ModelConfig) -> Architecture:
    """The first entry of the table that a model of this configuration is one of.

    Raises ConfigError ``architecture`` where no entry has these parts together.
    """
    for entry in ARCHITECTURES:
        if entry.has(config):
            return entry
    parts = [name for name in _DECIDED if getattr(config, name)] + (["window"] if config.window else [])
    raise ConfigError(
        "no architecture has these parts together",
        kind="architecture",
        got=", ".join(parts) or "scaled layers",
        expected=", ".join(entry.name for entry in ARCHITECTURES),
    )
