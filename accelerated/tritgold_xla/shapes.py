"""The types and shapes of a trace's arrays, by name: what an operation may be given and how its padding is cut off."""

import numpy as np

from tritgold.config import ModelConfig

# Stands in a shape for the tokens of a call that begins at position 0, and so for its keys too.
TOKENS = -1


def traced_type(name: str, config: ModelConfig) -> tuple[np.dtype, tuple[int, ...]]:
    """(dtype, shape) of the array that ``tritgold.graph`` calls ``name``; ``tokens`` are the input ids.

    >>> tiny = ModelConfig(vocab=9, hidden=8, inter=12, layers=1, heads=2, kv_heads=1, head_dim=4, context=16,
    ...     norm_eps=1e-5, rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True,
    ...     scale_rule="multiply")
    >>> traced_type("layers.0.down_in.codes", tiny), traced_type("layers.0.probs", tiny)
    ((dtype('int8'), (-1, 12)), (dtype('float32'), (2, -1, -1)))
    """
    c = config
    what = name.split(".", 2)[-1] if name.startswith("layers.") else name
    part, _, role = what.partition(".")
    widths = {
        **dict.fromkeys(
            ("embedding", "final_norm", "attn_norm", "attn_residual", "ffn_norm", "ffn_residual"), c.hidden
        ),
        **dict.fromkeys(("attn_mix", "attn_sub_norm"), c.q_width),
        **dict.fromkeys(("ffn_act", "ffn_sub_norm"), c.inter),
        **{"attn_in": c.hidden, "o_in": c.q_width, "ffn_in": c.hidden, "down_in": c.inter},
        "logits": c.vocab,
    }
    float32 = np.dtype(np.float32)
    if what == "tokens":
        return np.dtype(np.int64), (TOKENS,)
    if what == "probs":
        return float32, (c.heads, TOKENS, TOKENS)
    if what in ("q_rope", "k_rope"):
        return float32, (TOKENS, c.heads if what == "q_rope" else c.kv_heads, c.head_dim)
    if role == "scale":
        return float32, (TOKENS,)
    if role in ("acc", "out"):
        return np.dtype(np.int32) if role == "acc" else float32, (TOKENS, c.linear_shape(part)[0])
    return np.dtype(np.int8) if role == "codes" else float32, (TOKENS, widths[part])


def token_axis(name: str) -> int:
    """The axis along which an array grows with the tokens: 1 for softmax weights, 0 for everything else."""
    return 1 if name.endswith(".probs") else 0


def crop(name: str, array: np.ndarray, tokens: int, keys: int) -> np.ndarray:
    """A copy of the array ``name`` without the padding behind ``tokens`` and, of softmax weights, behind ``keys``."""
    return np.array(array[:, :tokens, :keys] if token_axis(name) else array[:tokens])
