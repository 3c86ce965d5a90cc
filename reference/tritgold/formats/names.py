"""Tensor names: one table per container, tritgold's name -> the container's names. ``{n}`` is the layer number."""

# A name may have several sources: transformers renamed the sub-norms of 1bitLLM's original code.
HF: dict[str, tuple[str, ...]] = {
    "embedding": ("model.embed_tokens.weight",),
    "layers.{n}.attn_norm": ("model.layers.{n}.input_layernorm.weight",),
    "layers.{n}.q": ("model.layers.{n}.self_attn.q_proj.weight",),
    "layers.{n}.k": ("model.layers.{n}.self_attn.k_proj.weight",),
    "layers.{n}.v": ("model.layers.{n}.self_attn.v_proj.weight",),
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
GGUF: dict[str, tuple[str, ...]] = {
    "embedding": ("token_embd.weight",),
    "layers.{n}.attn_norm": ("blk.{n}.attn_norm.weight",),
    "layers.{n}.q": ("blk.{n}.attn_q.weight",),
    "layers.{n}.k": ("blk.{n}.attn_k.weight",),
    "layers.{n}.v": ("blk.{n}.attn_v.weight",),
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


def written_name(table: dict[str, tuple[str, ...]], name: str) -> str:
    """The name under which tritgold's tensor ``name`` is written: the first of its ``candidates``.

    >>> written_name(HF, "layers.0.attn_sub_norm")
    'model.layers.0.self_attn.attn_sub_norm.weight'
    """
    return candidates(table, name)[0]


def candidates(table: dict[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """The container's names of tritgold's tensor ``name``; a file must have exactly one of them.

    >>> candidates(GGUF, "layers.3.o")
    ('blk.3.attn_output.weight',)
    """
    first, dot, rest = name.partition(".")
    if first != "layers" or not dot:
        return table[name]
    number, _, what = rest.partition(".")
    return tuple(pattern.replace("{n}", number) for pattern in table[f"layers.{{n}}.{what}"])
