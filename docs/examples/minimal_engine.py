"""A complete engine in the judge's sense, for a BitNet checkpoint folder: start from here, replace what is slow.

In this folder:

    tritgold check --engine minimal_engine:MinimalEngine

It reads config.json and model.safetensors with the safetensors package, computes in NumPy's float32, and imports
nothing of tritgold. `prefill`, `step` and one `operation`; it is not fast.
"""

import json
from pathlib import Path

import ml_dtypes  # noqa: F401 - importing it teaches NumPy bfloat16 (pip install ml_dtypes)
import numpy as np
from safetensors import safe_open


class MinimalEngine:
    """BitNet b1.58 with packed weights: ReLU squared, sub-norms, multiplying scales, tied head."""

    name = "minimal"

    def __init__(self, model: str) -> None:
        c = json.loads((Path(model) / "config.json").read_text())
        self.layers, self.heads, self.kv = c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"]
        self.head_dim, self.eps = c["head_dim"], np.float32(c["rms_norm_eps"])
        self.frequency = c["rope_theta"] ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        self.w = {}
        with safe_open(Path(model) / "model.safetensors", framework="numpy") as file:
            for name in file.keys():
                if not name.endswith("weight_scale"):
                    self.w[name] = self._read(file, name)
        self.reset()

    @staticmethod
    def _read(file, name):
        """float32 as it is; packed uint8 as (trits, scale)."""
        tensor = file.get_tensor(name)
        if tensor.dtype != np.uint8:
            return tensor.astype(np.float32)
        quarters = [((tensor >> shift) & 3).astype(np.float32) - 1 for shift in (0, 2, 4, 6)]
        return np.concatenate(quarters), file.get_tensor(name + "_scale").astype(np.float32)

    def reset(self) -> None:
        self.keys, self.values, self.length = [{} for _ in range(self.layers)], [{} for _ in range(self.layers)], 0

    def prefill(self, tokens):
        return np.stack([self.step(token) for token in tokens])

    def step(self, token):
        x = self.w["model.embed_tokens.weight"][token]
        for n in range(self.layers):
            x = self._layer(n, x)
        self.length += 1
        return self.w["model.embed_tokens.weight"] @ self._norm(x, "model.norm")

    def _layer(self, n, x):
        at = f"model.layers.{n}"
        h = self._norm(x, f"{at}.input_layernorm")
        q, k, v = (self._linear(h, f"{at}.self_attn.{p}_proj").reshape(-1, self.head_dim) for p in "qkv")
        self.keys[n][self.length], self.values[n][self.length] = self._rotate(k), v
        keys, values = (np.stack([d[n][i] for i in range(self.length + 1)]) for d in (self.keys, self.values))
        mix = []
        for head, query in enumerate(self._rotate(q)):
            scores = keys[:, head * self.kv // self.heads] @ query / np.float32(np.sqrt(self.head_dim))
            powers = np.exp(scores - scores.max())
            mix.append(powers / powers.sum() @ values[:, head * self.kv // self.heads])
        a = self._norm(np.concatenate(mix), f"{at}.self_attn.attn_sub_norm")
        x = x + self._linear(a, f"{at}.self_attn.o_proj")
        h = self._norm(x, f"{at}.post_attention_layernorm")
        f = np.maximum(self._linear(h, f"{at}.mlp.gate_proj"), 0) ** 2 * self._linear(h, f"{at}.mlp.up_proj")
        return x + self._linear(self._norm(f, f"{at}.mlp.ffn_sub_norm"), f"{at}.mlp.down_proj")

    def _norm(self, x, name):
        return x / np.sqrt(np.mean(x * x) + self.eps) * self.w[f"{name}.weight"]

    def _linear(self, x, name):
        trits, scale = self.w[f"{name}.weight"]
        s = np.float32(127) / max(np.abs(x).max(), np.float32(1e-5))
        return (trits @ np.rint(x * s)) / s * scale

    def _rotate(self, x):
        angle = self.length * self.frequency
        sin, cos = np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)
        first, second = np.split(x, 2, axis=1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)

    def operation(self, name, inputs):
        """The operations this engine has apart; None for the others, which are then not assessed."""
        if name == "layers.0.ffn_act":
            return {"x": np.maximum(inputs["gate"], 0) ** 2 * inputs["up"]}
        return None
