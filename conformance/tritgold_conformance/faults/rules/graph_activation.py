"""Faults of the graph: another activation of the gate, or its product with up in another type.

Biases that are ignored are not among the faults of the graph: no model of these families has any, and one that brings a
bias is refused when it is loaded.
"""

import math

import numpy as np

from tritgold.portable_math import exp
from tritgold_conformance.faults.fault import EDGE_INPUTS, OPERATIONS, Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import Function, gate, with_layers, wraps

AREA = "graph"


@known_fault(OPERATIONS, gate(unless="silu"))
def silu(g: np.ndarray) -> np.ndarray:
    """SiLU where the model has squared ReLU.

    Looks like: fluent and wrong: perplexity 100 for 17, the same on every backend
    Seen in: microsoft/BitNet #588, #602; ggml-org/llama.cpp #25885"""
    return g / (1.0 + exp(-g))


@known_fault(OPERATIONS, gate())
def gelu(g: np.ndarray) -> np.ndarray:
    """GELU in the gate.

    Looks like: fluent and wrong"""
    inner = math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)  # the tanh form
    return 0.5 * g * (1 + np.tanh(inner))


@known_fault(OPERATIONS, gate())
def relu(g: np.ndarray) -> np.ndarray:
    """ReLU in the gate, not squared.

    Looks like: fluent and wrong; as many zeros as there should be"""
    return np.maximum(g, 0.0)


@known_fault(Witness("operations", "llama"), gate(unless="relu2"))
def relu2(g: np.ndarray) -> np.ndarray:
    """Squared ReLU where the model has SiLU.

    Looks like: half of the FFN is zero"""
    return np.square(np.maximum(g, 0.0))


@known_fault(OPERATIONS, gate())
def squared_without_relu(g: np.ndarray) -> np.ndarray:
    """The gate is squared and its sign is lost.

    Looks like: no zeros in ffn_act"""
    return np.square(g)


@known_fault(EDGE_INPUTS, wraps("gated_activation"), invisible_on=("small-gates",))
def ffn_act_overflows_f16(right: Function, gate: np.ndarray, up: np.ndarray, activation: str) -> np.ndarray:
    """The product of the squared gate and up is float16.

    Looks like: inf, then NaN, from the first layer with a large gate on
    Seen in: lablup/mlxcel #287"""
    exact = right(gate, up, activation)
    return np.where(np.abs(exact) >= 65520, np.copysign(np.float32(np.inf), exact), exact).astype(np.float32)


@known_fault(OPERATIONS)
def gate_and_up_swapped(s: Mutant) -> Mutant:
    """gate and up are each other's matrix.

    Looks like: babble"""
    return with_layers(s, lambda layer: {"gate": layer.up, "up": layer.gate})
