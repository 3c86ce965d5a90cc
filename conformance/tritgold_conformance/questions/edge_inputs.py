"""Inputs that a model's own activations do not cover: exact ties, zero tokens, tiny tokens, extreme sums.

On random activations, half away from zero equals half to even, an int16 accumulator never overflows, and a missing eps
floor matters only for zeros. These inputs are for the operations of layer 0; the golden model's outputs for them are
the right ones.
"""

from collections.abc import Iterator

import numpy as np

from tritgold.config import ModelConfig
from tritgold.graph import Operation, operations
from tritgold_conformance.golden.run import GoldenRun


def edge_inputs(golden: GoldenRun) -> Iterator[tuple[Operation, str, dict[str, np.ndarray]]]:
    """(operation, description of the input, inputs by role), in execution order."""
    for operation in operations(golden.checkpoint.config):
        for label, inputs in _inputs(operation, golden):
            yield operation, label, inputs


def _inputs(operation: Operation, golden: GoldenRun) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    at = operation.at
    if at.layer != 0:
        return
    if at.what == "attn_in":
        yield "ties, zeros, tiny", {"x": ties_zeros_tiny(golden.checkpoint.config.hidden)}
    if operation.kind == "bit_linear":
        trits = golden.checkpoint.weights.layers[0].linear(at.what).ternary().trits
        yield "extreme sums", extreme_sums(trits)
    if at.what == "probs":
        yield "scores of 200", large_scores(golden.checkpoint.config)
    if at.what == "ffn_act":
        yield "signs and 300", gates(golden.checkpoint.config.inter)


def ties_zeros_tiny(width: int) -> np.ndarray:
    """float32 [4, width]: exact ties at s = 1; a zero token; a token below the floor of 1e-5; one outlier.

    >>> ties_zeros_tiny(6)[0].tolist()
    [127.0, 0.5, 1.5, 2.5, -0.5, -1.5]
    """
    x = np.zeros((4, width), np.float32)
    halves = np.arange(width) % 6
    x[0] = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)[(halves - 1) % 6]
    x[0, 0] = 127
    x[2] = np.float32(1e-6) * np.where(halves % 2 == 0, 1, -2)
    x[3, width // 2] = -1000
    return x


def extreme_sums(trits: np.ndarray) -> dict[str, np.ndarray]:
    """Codes and scales for a matrix of trits [out, in]: all +127; all -127; zeros; aligned with the densest row.

    The last gives a sum of 127 x the row's non-zero trits, too large for int16 from 259 non-zero trits on.
    """
    codes = np.zeros((4, trits.shape[1]), np.int8)
    codes[0], codes[1] = 127, -127
    codes[3] = trits[np.argmax(np.abs(trits).sum(axis=1))] * np.int8(127)
    return {"codes": codes, "scale": np.array([1.0, 31.75, 1.27e7, 0.37], np.float32)}


def large_scores(config: ModelConfig) -> dict[str, np.ndarray]:
    """q and k of four tokens whose scores are 200, 100, 0 and -200: e^200 is beyond float32."""
    size = np.sqrt(np.float32(200) / np.sqrt(np.float32(config.head_dim)))
    q = np.full((4, config.heads, config.head_dim), size, np.float32)
    k = np.full((4, config.kv_heads, config.head_dim), size, np.float32)
    k *= np.array([1, 0.5, 0, -1], np.float32)[:, None, None]
    return {"q": q, "k": k}


def gates(width: int) -> dict[str, np.ndarray]:
    """Gates of both signs, zero, and 300, whose square overflows float16; up is 1, then -2."""
    gate = np.resize(np.array([-1, 0.5, 2, 0, 300, -300], np.float32), (2, width))
    up = np.ones((2, width), np.float32)
    up[1] = -2
    return {"gate": gate, "up": up}
