"""peer.safetensors, read and renamed: transformers' module names become tritgold's trace names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

# Our name -> transformers' name, for whatever is a module there. {n}: layer.
PEER_NAMES = {
    "embedding": "model.embed_tokens.output",
    "layers.{n}.attn_norm": "model.layers.{n}.input_layernorm.output",
    "layers.{n}.attn_in.codes": "model.layers.{n}.self_attn.q_proj.codes",
    "layers.{n}.attn_in.scale": "model.layers.{n}.self_attn.q_proj.scale",
    "layers.{n}.q.out": "model.layers.{n}.self_attn.q_proj.output",
    "layers.{n}.k.out": "model.layers.{n}.self_attn.k_proj.output",
    "layers.{n}.v.out": "model.layers.{n}.self_attn.v_proj.output",
    "layers.{n}.attn_sub_norm": "model.layers.{n}.self_attn.attn_sub_norm.output",
    "layers.{n}.o_in.codes": "model.layers.{n}.self_attn.o_proj.codes",
    "layers.{n}.o_in.scale": "model.layers.{n}.self_attn.o_proj.scale",
    "layers.{n}.o.out": "model.layers.{n}.self_attn.o_proj.output",
    "layers.{n}.ffn_norm": "model.layers.{n}.post_attention_layernorm.output",
    "layers.{n}.ffn_in.codes": "model.layers.{n}.mlp.gate_proj.codes",
    "layers.{n}.ffn_in.scale": "model.layers.{n}.mlp.gate_proj.scale",
    "layers.{n}.gate.out": "model.layers.{n}.mlp.gate_proj.output",
    "layers.{n}.up.out": "model.layers.{n}.mlp.up_proj.output",
    "layers.{n}.ffn_sub_norm": "model.layers.{n}.mlp.ffn_sub_norm.output",
    "layers.{n}.down_in.codes": "model.layers.{n}.mlp.down_proj.codes",
    "layers.{n}.down_in.scale": "model.layers.{n}.mlp.down_proj.scale",
    "layers.{n}.down.out": "model.layers.{n}.mlp.down_proj.output",
    "layers.{n}.ffn_residual": "model.layers.{n}.output",
    "final_norm": "model.norm.output",
}


@dataclass(frozen=True, eq=False)
class Peer:
    """peer.safetensors, under our names. rows: those whose float activations were kept."""

    tokens: np.ndarray
    logits: np.ndarray
    rows: np.ndarray
    arrays: dict[str, np.ndarray]

    @classmethod
    def load(cls, path: Path) -> "Peer":
        """Raises KeyError for an array that the table does not know."""
        arrays = load_file(path)
        heads = {name: arrays.pop(name) for name in ("tokens", "logits", "rows")}
        table = {theirs: ours for ours, theirs in PEER_NAMES.items()}
        renamed = {}
        for name, array in arrays.items():
            pattern, layer = _pattern(name)
            renamed[table[pattern].replace("{n}", layer)] = array
        return cls(**heads, arrays=renamed)


def recorded(names: Iterable[str]) -> set[str]:
    """Those of our trace names that a peer records."""
    return {name for name in names if _pattern(name)[0] in PEER_NAMES}


def _pattern(name: str) -> tuple[str, str]:
    """``layers.12.x`` -> (``layers.{n}.x``, ``12``)."""
    found = re.search(r"(?<=layers\.)\d+", name)
    return (name, "") if found is None else (name[: found.start()] + "{n}" + name[found.end() :], found[0])
