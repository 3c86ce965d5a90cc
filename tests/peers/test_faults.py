"""Wrong readings of the same checkpoints, and spoilt peers: the comparison that passes the right ones fails each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from agreement import Verdict, compare, follow_ties
from judging import judge
from peer_trace import Peer

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.formats.stored_weights import PackedWeight
from tritgold.model import forward
from tritgold.ternary import InMemoryTernary, LinearWeight, TernaryTensor
from tritgold.trace import Trace
from tritgold.weights import LINEARS, ModelWeights

FIXTURES = Path(__file__).parent / "fixtures"
BITNET = "bitnet-auto-offline-tied"
LLAMA = "llama-bitlinear-tied"

# A fault takes weights and configuration and returns wrong ones.

Model = tuple[ModelWeights, ModelConfig]


def _each_linear(weights: ModelWeights, change: Callable[[LinearWeight], LinearWeight]) -> ModelWeights:
    layers = [replace(layer, **{n: change(layer.linear(n)) for n in LINEARS}) for layer in weights.layers]
    return replace(weights, layers=tuple(layers))


def _first_layer(weights: ModelWeights, **changes: Any) -> ModelWeights:
    return replace(weights, layers=(replace(weights.layers[0], **changes), *weights.layers[1:]))


def other_scale_direction(weights: ModelWeights, config: ModelConfig) -> Model:
    other = {"multiply": "divide", "divide": "multiply"}
    return weights, replace(config, scale_rule=other[config.scale_rule])


def interleaved_rows(weights: ModelWeights, config: ModelConfig) -> Model:
    """Bits 2 i of a byte into rows i::4, as the notebook's converter does; the truth is i * (out / 4) + r."""

    def change(weight: LinearWeight) -> LinearWeight:
        assert isinstance(weight, PackedWeight)
        packed = np.asarray(weight.stored.data).view(np.uint8).reshape(weight.shape[0] // 4, weight.shape[1])
        trits = np.empty(weight.shape, np.int8)
        for i in range(4):
            trits[i::4] = (packed >> (2 * i) & 3).astype(np.int8) - 1
        return InMemoryTernary(TernaryTensor(trits, weight.ternary().scale))

    return _each_linear(weights, change), config


def wrong_theta(weights: ModelWeights, config: ModelConfig) -> Model:
    return weights, replace(config, rope_theta=1e4)


def gate_and_up_swapped(weights: ModelWeights, config: ModelConfig) -> Model:
    return _first_layer(weights, gate=weights.layers[0].up, up=weights.layers[0].gate), config


def scale_of_o_from_the_next_layer(weights: ModelWeights, config: ModelConfig) -> Model:
    o, neighbour = (layer.o.ternary() for layer in weights.layers[:2])
    return _first_layer(weights, o=InMemoryTernary(TernaryTensor(o.trits, neighbour.scale))), config


def scale_of_gate_dropped(weights: ModelWeights, config: ModelConfig) -> Model:
    gate = weights.layers[0].gate.ternary()
    return _first_layer(weights, gate=InMemoryTernary(TernaryTensor(gate.trits, np.asarray(np.float32(1))))), config


def eps_of_llama_2(weights: ModelWeights, config: ModelConfig) -> Model:
    return weights, replace(config, norm_eps=1e-6)


def attn_sub_norm_dropped(weights: ModelWeights, config: ModelConfig) -> Model:
    return _first_layer(weights, attn_sub_norm=None), config


def ffn_sub_norm_dropped(weights: ModelWeights, config: ModelConfig) -> Model:
    return _first_layer(weights, ffn_sub_norm=None), config


def all_sub_norms_dropped(weights: ModelWeights, config: ModelConfig) -> Model:
    layers = tuple(replace(layer, attn_sub_norm=None, ffn_sub_norm=None) for layer in weights.layers)
    return replace(weights, layers=layers), replace(config, sub_norms=False)


@dataclass(frozen=True)
class Fault:
    make: Callable[[ModelWeights, ModelConfig], Model]
    case: str
    seen_at: str  # the first array that is wrong
    in_logits: bool = True  # whether the logits alone would show it


FAULTS = [
    Fault(other_scale_direction, BITNET, "layers.0.q.out"),
    Fault(other_scale_direction, LLAMA, "layers.0.q.out"),
    Fault(interleaved_rows, BITNET, "layers.0.q.out"),
    Fault(interleaved_rows, LLAMA, "layers.0.q.out"),
    Fault(attn_sub_norm_dropped, BITNET, "layers.0.attn_sub_norm"),
    Fault(ffn_sub_norm_dropped, BITNET, "layers.0.ffn_sub_norm"),
    Fault(all_sub_norms_dropped, BITNET, "layers.0.attn_sub_norm"),
    Fault(wrong_theta, BITNET, "layers.0.attn_sub_norm"),
    Fault(wrong_theta, LLAMA, "layers.0.o_in.scale"),
    Fault(gate_and_up_swapped, BITNET, "layers.0.gate.out"),
    Fault(gate_and_up_swapped, LLAMA, "layers.0.gate.out"),
    Fault(scale_of_o_from_the_next_layer, BITNET, "layers.0.o.out"),
    Fault(scale_of_o_from_the_next_layer, LLAMA, "layers.0.o.out"),
    Fault(scale_of_gate_dropped, BITNET, "layers.0.gate.out", in_logits=False),
    Fault(eps_of_llama_2, BITNET, "layers.0.attn_norm"),
]


def faulty(fault: Fault) -> Verdict:
    checkpoint = open_checkpoint(FIXTURES / fault.case / "checkpoint")
    peer = Peer.load(FIXTURES / fault.case / "peer.safetensors")
    weights, config = fault.make(checkpoint.weights, checkpoint.config)
    trace = Trace()
    forward(peer.tokens, weights, config, trace=trace)
    if config.sub_norms:  # a norm that was dropped handed on what it was given
        for name, source in (("attn_sub_norm", "attn_mix"), ("ffn_sub_norm", "ffn_act")):
            trace.arrays.setdefault(f"layers.0.{name}", trace[f"layers.0.{source}"])
    return compare(trace, config, peer)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.make.__name__}-{f.case.split('-')[0]}")
def test_a_fault_is_seen_and_named(fault: Fault) -> None:
    verdict = faulty(fault)
    assert verdict.problems
    assert verdict.problems[0].startswith(f"{fault.seen_at}:")
    assert (len(verdict.far) >= 30) == fault.in_logits


@pytest.mark.parametrize("case", [BITNET, LLAMA])
def test_another_linear_class_in_the_config_is_a_wrong_result_and_no_error(case: str, tmp_path: Path) -> None:
    for file in (FIXTURES / case / "checkpoint").iterdir():
        text = file.read_bytes()
        if file.name == "config.json":
            old, new = (b'"bitlinear"', b'"autobitlinear"')[:: -1 if case == BITNET else 1]
            assert old in text
            text = text.replace(old, new)
        (tmp_path / file.name).write_bytes(text)
    checkpoint = open_checkpoint(tmp_path)
    peer = Peer.load(FIXTURES / case / "peer.safetensors")
    trace = Trace()
    forward(peer.tokens, checkpoint.weights, checkpoint.config, trace=trace)
    assert compare(trace, checkpoint.config, peer).problems[0].startswith("layers.0.q.out: differs by")


def test_truncated_activations_are_no_ties() -> None:
    checkpoint = open_checkpoint(FIXTURES / BITNET / "checkpoint")
    peer = Peer.load(FIXTURES / BITNET / "peer.safetensors")
    trace = Trace()
    with mock.patch("tritgold.quantize.np.rint", np.trunc):
        forward(peer.tokens, checkpoint.weights, checkpoint.config, trace=trace)
    assert "from a tie" in compare(trace, checkpoint.config, peer).problems[0]


# Each check of the comparison itself can fail.


def _spoilt(change: Callable[[dict[str, np.ndarray], np.ndarray], None]) -> Verdict:
    case = judge(FIXTURES / BITNET)
    arrays = {name: array.copy() for name, array in case.peer.arrays.items()}
    logits = case.peer.logits.copy()
    change(arrays, logits)
    return compare(case.golden, case.checkpoint.config, replace(case.peer, arrays=arrays, logits=logits))


def _one_code(by: int) -> Callable[[dict[str, np.ndarray], np.ndarray], None]:
    def change(arrays: dict[str, np.ndarray], logits: np.ndarray) -> None:
        codes = arrays["layers.1.down_in.codes"]
        row = codes[17]
        row[np.argmin(np.abs(row.astype(int)))] += by

    return change


def _set_logit(value: float) -> Callable[[dict[str, np.ndarray], np.ndarray], None]:
    def change(arrays: dict[str, np.ndarray], logits: np.ndarray) -> None:
        logits[17, 5] += value * np.abs(logits).max()

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_one_code(1), "layers.1.down_in.codes: 1 codes differ"),
        (_one_code(2), "layers.1.down_in.codes: 1 codes differ"),
        (_set_logit(1e-4), "logits of 17: differ by 1.0e-04"),
        (_set_logit(np.nan), "logits of 0: differ by nan"),
        (lambda arrays, logits: arrays.pop("layers.1.up.out"), "layers.1.up.out: not in the peer"),
        (
            lambda arrays, logits: arrays.update({"layers.0.bias": logits}),
            "layers.0.bias: in the peer, not in our graph",
        ),
        (lambda arrays, logits: arrays["layers.1.up.out"].__setitem__((3, 2), np.inf), "layers.1.up.out: differs"),
    ],
)
def test_the_comparison_can_fail(change: Callable[..., None], problem: str) -> None:
    assert _spoilt(change).problems[0].startswith(problem)


def test_a_code_at_a_tie_is_followed_and_no_other() -> None:
    case = judge(FIXTURES / "bitnet-auto-online-untied")
    assert case.taken == len(case.verdict.ties)
    first = min(case.verdict.tied)
    codes = case.peer.arrays[f"{case.verdict.tied[first]}.codes"].copy()
    codes[0, 0] += 2
    spoilt = replace(case.peer, arrays=case.peer.arrays | {f"{case.verdict.tied[first]}.codes": codes})
    trace, taken = follow_ties(case.checkpoint.weights, case.checkpoint.config, spoilt)
    assert taken == case.taken
    assert compare(trace, case.checkpoint.config, spoilt).problems
