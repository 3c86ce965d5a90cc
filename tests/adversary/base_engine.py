"""A ternary BitNet engine in plain NumPy, in small pieces that an entry replaces one at a time.

It reads config.json and model.safetensors by itself and imports nothing of tritgold. Names of matrices and norms are
those of docs/traces.md (layers.0.q, layers.0.attn_norm, final_norm). Arrays have the token as their first axis.
"""

import json
from pathlib import Path

import ml_dtypes  # noqa: F401 - teaches NumPy bfloat16, which safetensors returns
import numpy as np
from safetensors import safe_open

F = np.float32
LINEARS = {f"self_attn.{p}_proj": p for p in "qkvo"} | {f"mlp.{p}_proj": p for p in ("gate", "up", "down")}
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
}


def short_name(tensor: str) -> str:
    """model.layers.0.self_attn.q_proj.weight -> layers.0.q"""
    name = tensor.removeprefix("model.").removesuffix(".weight")
    if not name.startswith("layers."):
        return {"embed_tokens": "embedding", "norm": "final_norm"}.get(name, name)
    _, layer, rest = name.split(".", 2)
    return f"layers.{layer}.{(LINEARS | NORMS)[rest]}"


class Engine:
    """prefill, step and reset: all that an engine needs to be judged by its logits."""

    name = "adversary"

    def __init__(self, model: str) -> None:
        self.folder = Path(model)
        self.config = c = json.loads((self.folder / "config.json").read_text())
        self.layers, self.heads, self.kv = c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"]
        self.d, self.eps, self.theta = c["head_dim"], F(c["rms_norm_eps"]), float(c["rope_theta"])
        self.vocab, self.context = c["vocab_size"], c["max_position_embeddings"]
        self.trits: dict[str, np.ndarray] = {}
        self.scales: dict[str, np.ndarray] = {}
        self.floats: dict[str, np.ndarray] = {}
        self.notes: dict[str, np.ndarray] | None = None  # a dict while a trace is taken
        self.load(self.folder / "model.safetensors")
        self.prepare()
        self.reset()

    def load(self, path: Path) -> None:
        with safe_open(path, framework="numpy") as file:
            for name in list(file.keys()):
                if name.endswith("weight_scale"):
                    continue
                tensor = file.get_tensor(name)
                if tensor.dtype == np.uint8:
                    self.trits[short_name(name)] = self.unpack_weight(short_name(name), tensor)
                    self.scales[short_name(name)] = file.get_tensor(name + "_scale").astype(F).reshape(())
                else:
                    self.floats[short_name(name)] = tensor.astype(F)

    def unpack_weight(self, name: str, packed: np.ndarray) -> np.ndarray:
        """uint8 [out / 4, in] -> float32 trits [out, in]."""
        return np.concatenate([((packed >> shift) & 3).astype(F) - 1 for shift in (0, 2, 4, 6)])

    def prepare(self) -> None:
        """A place to change weights after loading."""

    def reset(self) -> None:
        self.keys = [np.zeros((0, self.kv, self.d), F) for _ in range(self.layers)]
        self.values = [np.zeros((0, self.kv, self.d), F) for _ in range(self.layers)]
        self.length = 0

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return self.read([int(t) for t in tokens])

    def step(self, token: int) -> np.ndarray:
        return self.read([int(token)])[-1]

    def read(self, ids: list[int]) -> np.ndarray:
        """Logits [tokens, vocab] of the tokens after what was read before."""
        positions = self.positions(len(ids))
        x = self.note("embedding", self.embed(ids))
        for n in range(self.layers):
            x = self.layer(n, x, positions)
        self.length += len(ids)
        return self.note("logits", self.head(self.note("final_norm", self.norm("final_norm", x))))

    def note(self, name: str, array: np.ndarray) -> np.ndarray:
        if self.notes is not None:
            self.notes[name] = np.array(array)
        return array

    def positions(self, count: int) -> np.ndarray:
        return self.length + np.arange(count)

    def embed(self, ids: list[int]) -> np.ndarray:
        return self.floats["embedding"][ids]

    def layer(self, n: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        at = f"layers.{n}"
        h = self.note(f"{at}.attn_norm", self.norm(f"{at}.attn_norm", x))
        q, k, v = self.linears(f"{at}.attn_in", h, [f"{at}.q", f"{at}.k", f"{at}.v"])
        q, k, v = (a.reshape(len(x), -1, self.d) for a in (q, k, v))
        q = self.note(f"{at}.q_rope", self.rotate(f"{at}.q", q, positions))
        k = self.note(f"{at}.k_rope", self.rotate(f"{at}.k", k, positions))
        keys, values = self.cached(n, k, v)
        a = self.note(f"{at}.attn_mix", self.attend(n, q, keys, values))
        a = self.note(f"{at}.attn_sub_norm", self.norm(f"{at}.attn_sub_norm", a))
        (o,) = self.linears(f"{at}.o_in", a, [f"{at}.o"])
        x = self.note(f"{at}.attn_residual", self.add(f"{at}.attn_residual", x, o))
        h = self.note(f"{at}.ffn_norm", self.norm(f"{at}.ffn_norm", x))
        gate, up = self.linears(f"{at}.ffn_in", h, [f"{at}.gate", f"{at}.up"])
        f = self.note(f"{at}.ffn_act", self.gated(n, gate, up))
        f = self.note(f"{at}.ffn_sub_norm", self.norm(f"{at}.ffn_sub_norm", f))
        (down,) = self.linears(f"{at}.down_in", f, [f"{at}.down"])
        return self.note(f"{at}.ffn_residual", self.add(f"{at}.ffn_residual", x, down))

    def add(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float64)
        return (wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + self.eps) * self.floats[name]).astype(F)

    def linears(self, source: str, x: np.ndarray, names: list[str]) -> list[np.ndarray]:
        codes, s = self.quantize(source, x)
        self.note(f"{source}.codes", codes.astype(np.int8))
        self.note(f"{source}.scale", s)
        found = []
        for name in names:
            acc = self.accumulate(name, codes)
            self.note(f"{name}.acc", np.asarray(acc).astype(np.int32))
            found.append(self.note(f"{name}.out", self.rescale(name, acc, s)))
        return found

    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes [tokens, in] as float32 integers, and s [tokens]."""
        s = F(127) / np.maximum(np.abs(x).max(-1), F(1e-5))
        return np.clip(np.rint(x * s[:, None]), -128, 127), s

    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        return codes @ self.trits[name].T

    def rescale(self, name: str, acc: np.ndarray, s: np.ndarray) -> np.ndarray:
        return acc.astype(F) / s[:, None] * self.scales[name]

    def frequencies(self) -> np.ndarray:
        return self.theta ** (-np.arange(0, self.d, 2) / self.d)

    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angle = positions[:, None, None] * self.frequencies()
        sin, cos = np.sin(angle), np.cos(angle)
        a, b = x[..., : self.d // 2], x[..., self.d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(F)

    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keep the new rows; keys and values of all positions so far."""
        self.keys[n], self.values[n] = np.concatenate([self.keys[n], k]), np.concatenate([self.values[n], v])
        return self.keys[n], self.values[n]

    def kv_head(self, n: int, head: int) -> int:
        return head * self.kv // self.heads

    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        """bool [rows, columns]: what each token may see."""
        return np.arange(columns) <= (columns - rows + np.arange(rows))[:, None]

    def attend(self, n: int, q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        probs = self.note(f"layers.{n}.probs", self.probabilities(n, q, keys))
        return self.mix(n, probs, values)

    def probabilities(self, n: int, q: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """float32 [heads, tokens, keys]"""
        scores = np.stack([self.scores(n, h, q[:, h], keys[:, self.kv_head(n, h)]) for h in range(self.heads)])
        scores = np.where(self.visible(n, len(q), len(keys)), scores, -np.inf)
        return self.softmax(n, scores).astype(F)

    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return q.astype(np.float64) @ k.T.astype(np.float64) / np.sqrt(self.d)

    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def mix(self, n: int, probs: np.ndarray, values: np.ndarray) -> np.ndarray:
        found = [probs[h].astype(np.float64) @ values[:, self.kv_head(n, h)] for h in range(self.heads)]
        return np.stack(found, 1).reshape(probs.shape[1], -1).astype(F)

    def gated(self, n: int, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return np.maximum(gate, 0) ** 2 * up

    def head(self, x: np.ndarray) -> np.ndarray:
        return x @ self.floats.get("lm_head", self.floats["embedding"]).T
