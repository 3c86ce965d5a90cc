"""The golden model as an engine: judged against itself it must be equal, which proves the judge's own tables."""

from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.graph import operations
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.attention import mix_values, softmax_weights
from tritgold.layers.bit_linear import accumulate, apply_scales
from tritgold.layers.embedding import embed
from tritgold.layers.feed_forward import gated_activation
from tritgold.layers.lm_head import logits
from tritgold.layers.rms_norm import rms_norm
from tritgold.layers.rotary import rotate, rotation_table
from tritgold.model import forward
from tritgold.quantize import absmax_int8
from tritgold.trace import Trace, versions


class ReferenceEngine:
    """tritgold itself."""

    name = "reference"

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config, self._weights = checkpoint.config, checkpoint.weights
        self._operations = {operation.name: operation for operation in operations(self._config)}
        self.reset()

    def versions(self) -> dict[str, str]:
        """Python, NumPy and the machine."""
        return versions()

    def reset(self) -> None:
        """Forget every token."""
        self._cache = Float32Cache(self._config, self._config.context)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        """float32 [tokens, vocab]."""
        return forward(tokens, self._weights, self._config, self._cache)

    def step(self, token: int) -> np.ndarray:
        """float32 [vocab]."""
        return forward([token], self._weights, self._config, self._cache)[0]

    def trace(self, tokens: list[int]) -> Trace:
        """Every activation of a fresh prefill."""
        trace = Trace()
        forward(tokens, self._weights, self._config, trace=trace)
        return trace

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One operation of the graph; role names as in ``tritgold.graph``."""
        c, w, at = self._config, self._weights, name.split(".")
        layer = w.layers[int(at[1])] if at[0] == "layers" else None
        match self._operations[name].kind:
            case "embedding":
                return {"x": embed(inputs["tokens"], w.embedding)}
            case "rms_norm":
                gain = w.final_norm if layer is None else getattr(layer, at[2])
                return {"x": rms_norm(inputs["x"], gain, c.norm_eps)}
            case "quantize":
                codes, scale = absmax_int8(inputs["x"])
                return {"codes": codes, "scale": scale}
            case "bit_linear":
                assert layer is not None
                tensor = layer.linear(at[2]).ternary()
                acc = accumulate(inputs["codes"], tensor.trits)
                return {"acc": acc, "out": apply_scales(acc, inputs["scale"], tensor.scale, c.scale_rule)}
            case "rope":
                table = rotation_table(np.arange(len(inputs["q"])), c.head_dim, c.rope_theta)
                return {role: rotate(inputs[role].reshape(len(inputs[role]), -1, c.head_dim), table) for role in "qk"}
            case "softmax":
                return {"x": softmax_weights(inputs["q"], inputs["k"], start=0)}
            case "mix":
                values = inputs["v"].reshape(-1, c.kv_heads, c.head_dim)
                return {"x": mix_values(inputs["probs"], values)}
            case "ffn_activation":
                return {"x": gated_activation(inputs["gate"], inputs["up"], c.activation)}
            case "add":
                return {"x": inputs["a"] + inputs["b"]}
            case "lm_head":
                return {"x": logits(inputs["x"], w.head_or_embedding)}


def open_engine(path: Path) -> ReferenceEngine:
    """The golden model on a checkpoint."""
    return ReferenceEngine(open_checkpoint(path))
