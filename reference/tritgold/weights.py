"""ModelWeights and LayerWeights: the tensors of a model. Data only; nothing here reads a file or multiplies.

Linear weights are handles (``LinearWeight``); a matrix is unpacked only when the arithmetic needs it, so a
2B-parameter model takes its packed bytes plus one matrix. The embedding is a handle too (``DenseMatrix``): rows
are widened to float32 when they are looked up.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tritgold.ternary import DenseMatrix, LinearWeight

LINEARS = ("q", "k", "v", "o", "gate", "up", "down")
NORMS = (
    *("attn_norm", "q_norm", "k_norm", "attn_sub_norm", "attn_post_norm"),
    *("ffn_norm", "ffn_sub_norm", "ffn_post_norm"),
)
VECTORS = (*NORMS, "q_bias", "k_bias", "v_bias")


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One decoder layer. Norm gains and biases are float32 vectors, None in architectures without them.

    attn_norm, ffn_norm, attn_post_norm, ffn_post_norm: [hidden]; attn_sub_norm: [heads * head_dim];
    ffn_sub_norm: [inter]; q_norm, k_norm: [head_dim]; q_bias, k_bias, v_bias: [out] of their linear
    q: [heads * head_dim, hidden]; k, v: [kv_heads * head_dim, hidden]; o: [hidden, heads * head_dim]
    gate, up: [inter, hidden]; down: [hidden, inter]
    """

    attn_norm: np.ndarray
    q: LinearWeight
    k: LinearWeight
    v: LinearWeight
    attn_sub_norm: np.ndarray | None
    o: LinearWeight
    ffn_norm: np.ndarray
    gate: LinearWeight
    up: LinearWeight
    ffn_sub_norm: np.ndarray | None
    down: LinearWeight
    q_norm: np.ndarray | None = None
    k_norm: np.ndarray | None = None
    attn_post_norm: np.ndarray | None = None
    ffn_post_norm: np.ndarray | None = None
    q_bias: np.ndarray | None = None
    k_bias: np.ndarray | None = None
    v_bias: np.ndarray | None = None

    def bias(self, name: str) -> np.ndarray | None:
        """What the linear ``name`` adds after its scales, float32 [out]; None where it adds nothing."""
        bias: np.ndarray | None = getattr(self, f"{name}_bias", None)
        return bias

    def linear(self, name: str) -> LinearWeight:
        """The linear weight called ``name``, one of LINEARS; KeyError for another name."""
        if name not in LINEARS:
            raise KeyError(f"no linear weight {name!r} among {LINEARS}")
        weight: LinearWeight = getattr(self, name)
        return weight


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """All tensors of a model.

    embedding: [vocab, hidden]; final_norm: float32 [hidden].
    head: [vocab, hidden], or None if the head is tied to the embedding. Use ``head_or_embedding``.
    """

    embedding: DenseMatrix
    layers: tuple[LayerWeights, ...]
    final_norm: np.ndarray
    head: DenseMatrix | None

    @property
    def head_or_embedding(self) -> DenseMatrix:
        """The matrix for the logits: the head, or the embedding if they are tied."""
        return self.embedding if self.head is None else self.head

    def linears(self) -> Iterator[tuple[str, LinearWeight]]:
        """Every ternary weight with its name, ``layers.0.q`` and so on, in execution order."""
        for index, layer in enumerate(self.layers):
            for name in LINEARS:
                yield f"layers.{index}.{name}", layer.linear(name)
