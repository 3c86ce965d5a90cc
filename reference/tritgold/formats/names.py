"""Tensor names: one table per container, tritgold's name -> the container's names. ``{n}`` is the layer number.

``hf_names`` has the changes of an architecture that calls its tensors otherwise.
"""

from collections.abc import Mapping

from tritgold.architectures import Architecture

Names = Mapping[str, tuple[str, ...]]

# A name may have several sources: transformers renamed the sub-norms of 1bitLLM's original code.
HF: Names = {
    "embedding": ("model.embed_tokens.weight",),
    "layers.{n}.attn_norm": ("model.layers.{n}.input_layernorm.weight",),
    "layers.{n}.q": ("model.layers.{n}.self_attn.q_proj.weight",),
    "layers.{n}.k": ("model.layers.{n}.self_attn.k_proj.weight",),
    "layers.{n}.v": ("model.layers.{n}.self_attn.v_proj.weight",),
    "layers.{n}.q_bias": ("model.layers.{n}.self_attn.q_proj.bias",),
    "layers.{n}.k_bias": ("model.layers.{n}.self_attn.k_proj.bias",),
    "layers.{n}.v_bias": ("model.layers.{n}.self_attn.v_proj.bias",),
    "layers.{n}.q_norm": ("model.layers.{n}.self_attn.q_norm.weight",),
    "layers.{n}.k_norm": ("model.layers.{n}.self_attn.k_norm.weight",),
    "layers.{n}.attn_sub_norm": (
        "model.layers.{n}.self_attn.attn_sub_norm.weight",
        "model.layers.{n}.self_attn.inner_attn_ln.weight",
    ),
    "layers.{n}.o": ("model.layers.{n}.self_attn.o_proj.weight",),
    "layers.{n}.ffn_norm": ("model.layers.{n}.post_attention_layernorm.weight",),
    "layers.{n}.gate": ("model.layers.{n}.mlp.gate_proj.weight",),
    "layers.{n}.up": ("model.layers.{n}.mlp.up_proj.weight",),
    "layers.{n}.ffn_sub_norm": (
        "model.layers.{n}.mlp.ffn_sub_norm.weight",
        "model.layers.{n}.mlp.ffn_layernorm.weight",
    ),
    "layers.{n}.down": ("model.layers.{n}.mlp.down_proj.weight",),
    "final_norm": ("model.norm.weight",),
    "head": ("lm_head.weight",),
}
GGUF: Names = {
    "embedding": ("token_embd.weight",),
    "layers.{n}.attn_norm": ("blk.{n}.attn_norm.weight",),
    "layers.{n}.q": ("blk.{n}.attn_q.weight",),
    "layers.{n}.k": ("blk.{n}.attn_k.weight",),
    "layers.{n}.v": ("blk.{n}.attn_v.weight",),
    "layers.{n}.q_bias": ("blk.{n}.attn_q.bias",),
    "layers.{n}.k_bias": ("blk.{n}.attn_k.bias",),
    "layers.{n}.v_bias": ("blk.{n}.attn_v.bias",),
    "layers.{n}.q_norm": ("blk.{n}.attn_q_norm.weight",),
    "layers.{n}.k_norm": ("blk.{n}.attn_k_norm.weight",),
    "layers.{n}.attn_post_norm": ("blk.{n}.post_attention_norm.weight",),
    "layers.{n}.ffn_post_norm": ("blk.{n}.post_ffw_norm.weight",),
    "layers.{n}.attn_sub_norm": ("blk.{n}.attn_sub_norm.weight",),
    "layers.{n}.o": ("blk.{n}.attn_output.weight",),
    "layers.{n}.ffn_norm": ("blk.{n}.ffn_norm.weight",),
    "layers.{n}.gate": ("blk.{n}.ffn_gate.weight",),
    "layers.{n}.up": ("blk.{n}.ffn_up.weight",),
    "layers.{n}.ffn_sub_norm": ("blk.{n}.ffn_sub_norm.weight",),
    "layers.{n}.down": ("blk.{n}.ffn_down.weight",),
    "final_norm": ("output_norm.weight",),
    "head": ("output.weight",),
}


def hf_names(entry: Architecture) -> Names:
    """The names of a safetensors file of this architecture."""
    return {**HF, **entry.hf_names}


def written_name(table: Names, name: str) -> str:
    """The name under which our tensor ``name`` is written: the first that is read.

    >>> written_name(HF, "layers.0.attn_sub_norm")
    'model.layers.0.self_attn.attn_sub_norm.weight'
    """
    return candidates(table, name)[0]


def candidates(table: Names, name: str) -> tuple[str, ...]:
    """The source names that may hold our tensor ``name``.

    >>> candidates(GGUF, "layers.3.o")
    ('blk.3.attn_output.weight',)
    """
    first, dot, rest = name.partition(".")
    if first != "layers" or not dot:
        return table[name]
    number, _, what = rest.partition(".")
    return tuple(pattern.replace("{n}", number) for pattern in table[f"layers.{{n}}.{what}"])
