"""The golden model as an engine: judged against itself it must be equal, which tests the judge itself."""

import numpy as np

from tritgold import graph
from tritgold.checkpoint import Checkpoint
from tritgold.kv_cache.base import KvCache
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.layers.rms_norm import normed_by
from tritgold.layers.scaled import added, divided, scaled
from tritgold.model import forward
from tritgold.trace import Trace, versions


class ReferenceEngine:
    """The golden model; with another ``arithmetic``, for example a golden model with a deliberate fault."""

    name = "reference"

    def __init__(
        self, checkpoint: Checkpoint, capacity: int | None = None, arithmetic: Arithmetic = GOLDEN_ARITHMETIC
    ) -> None:
        self._capacity = checkpoint.config.context if capacity is None else capacity
        self._config, self._weights, self._op = checkpoint.config, checkpoint.weights, arithmetic
        self._operations = {operation.name: operation for operation in graph.operations(self._config)}
        self._cache: KvCache = Float32Cache(self._config, self._capacity)

    def versions(self) -> dict[str, str]:
        """Versions of Python and NumPy, and the machine."""
        return versions()

    def reset(self) -> None:
        """Forget all tokens."""
        self._cache.truncate(0)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        """float32 [tokens, vocab]."""
        return forward(tokens, self._weights, self._config, self._cache, arithmetic=self._op)

    def step(self, token: int) -> np.ndarray:
        """float32 [vocab]."""
        return forward([token], self._weights, self._config, self._cache, arithmetic=self._op)[0]

    def trace(self, tokens: list[int]) -> Trace:
        """Every activation of a fresh prefill."""
        trace = Trace()
        forward(tokens, self._weights, self._config, trace=trace, arithmetic=self._op)
        return trace

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by role of one operation; roles as in ``tritgold.graph``. ``alter`` gets its inputs and outputs."""
        operation = self._operations[name]
        seen = {operation.reads[role]: array for role, array in inputs.items()}
        outputs = self._outputs(operation, inputs, seen)
        for role in [role for role in outputs if role != "acc"]:  # acc is altered before the scales are applied
            outputs[role] = self._altered(operation.writes[role], outputs[role], seen)
        return outputs

    def _altered(self, name: str, value: np.ndarray, seen: dict[str, np.ndarray]) -> np.ndarray:
        if self._op.alter is not None:
            value = seen[name] = self._op.alter(name, value, seen)
        return value

    def _outputs(
        self, operation: graph.Operation, inputs: dict[str, np.ndarray], seen: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        c, w, op, at = self._config, self._weights, self._op.at(operation.name), operation.at
        layer = None if at.layer is None else w.layers[at.layer]
        match operation.kind:
            case "embedding":
                return {"x": scaled(op.embed(inputs["tokens"], w.embedding), c.embedding_scale)}
            case "rms_norm":
                gain = w.final_norm if layer is None else getattr(layer, at.what)
                shape = operation.outputs["x"].shape(c, len(inputs["x"]))
                return {"x": normed_by(op.rms_norm, inputs["x"], gain, c.norm_eps).reshape(shape)}
            case "quantize":
                codes, scale = op.quantize(inputs["x"])
                return {"codes": codes, "scale": scale}
            case "bit_linear":
                assert layer is not None
                tensor = layer.linear(at.what).ternary()
                acc = self._altered(operation.writes["acc"], op.accumulate(inputs["codes"], tensor.trits), seen)
                out, bias = op.apply_scales(acc, inputs["scale"], tensor.scale, c.scale_rule), layer.bias(at.what)
                return {"acc": acc, "out": out if bias is None else out + bias}
            case "rope":
                assert at.layer is not None
                table = op.rotation_table(np.arange(len(inputs["q"])), c.head_dim, *c.rope_of(at.layer))
                return {
                    role: op.rotate(inputs[role].reshape(len(inputs[role]), -1, c.head_dim), table) for role in "qk"
                }
            case "softmax":
                assert at.layer is not None
                window = {} if (size := c.window_of(at.layer)) is None else {"window": size}
                q = scaled(inputs["q"], c.query_scale)
                return {"x": op.softmax_weights(q, inputs["k"], start=0, **window)}
            case "mix":
                values = inputs["v"].reshape(-1, c.kv_heads, c.head_dim)
                return {"x": op.mix_values(inputs["probs"], values)}
            case "ffn_activation":
                return {"x": op.gated_activation(inputs["gate"], inputs["up"], c.activation)}
            case "add":
                return {"x": added(inputs["a"], inputs["b"], c.residual_scale)}
            case "lm_head":
                return {"x": op.logits(divided(inputs["x"], c.logit_divisor), w.head_or_embedding)}


def open_engine(checkpoint: Checkpoint, capacity: int) -> ReferenceEngine:
    """The golden model on a checkpoint, with room for ``capacity`` positions."""
    return ReferenceEngine(checkpoint, capacity)
