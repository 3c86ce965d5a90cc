"""Wrong readings of the same checkpoints, and spoilt peers: the judgement that passes the right ones fails each."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import assert_agrees, judge, judge_peer

from tritgold.checkpoint import open_checkpoint
from tritgold.formats.stored_weights import PackedWeight
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.ternary import InMemoryTernary, LinearWeight, TernaryTensor
from tritgold.weights import LINEARS
from tritgold_conformance.golden.run import GoldenRun

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(folder.name for folder in FIXTURES.iterdir())
BITNET = "bitnet-auto-offline-tied"
LLAMA = "llama-bitlinear-tied"
TIED = "bitnet-auto-online-untied"

# A fault takes the right golden run and returns a wrong one.


def _again(golden: GoldenRun, arithmetic: Arithmetic = GOLDEN_ARITHMETIC, **changes: Any) -> GoldenRun:
    return GoldenRun.of(replace(golden.checkpoint, **changes), golden.tokens, arithmetic)


def _config(golden: GoldenRun, **changes: Any) -> GoldenRun:
    return _again(golden, config=replace(golden.checkpoint.config, **changes))


def _layers(golden: GoldenRun, count: int, change: Callable[..., dict[str, Any]]) -> GoldenRun:
    """The first layers with some of their weights replaced."""
    weights = golden.checkpoint.weights
    layers = [replace(layer, **change(layer)) for layer in weights.layers[:count]]
    return _again(golden, weights=replace(weights, layers=(*layers, *weights.layers[count:])))


def other_scale_direction(golden: GoldenRun) -> GoldenRun:
    return _config(golden, scale_rule={"multiply": "divide", "divide": "multiply"}[golden.checkpoint.config.scale_rule])


def interleaved_rows(golden: GoldenRun) -> GoldenRun:
    """Bits 2 i of a byte into rows i::4, as some converters do; the truth is i * (out / 4) + r."""

    def change(weight: LinearWeight) -> LinearWeight:
        assert isinstance(weight, PackedWeight)
        packed = np.asarray(weight.stored.data).view(np.uint8).reshape(weight.shape[0] // 4, weight.shape[1])
        trits = np.empty(weight.shape, np.int8)
        for i in range(4):
            trits[i::4] = (packed >> (2 * i) & 3).astype(np.int8) - 1
        return InMemoryTernary(TernaryTensor(trits, weight.ternary().scale))

    every = golden.checkpoint.config.layers
    return _layers(golden, every, lambda layer: {name: change(layer.linear(name)) for name in LINEARS})


def wrong_theta(golden: GoldenRun) -> GoldenRun:
    return _config(golden, rope_theta=1e4)


def eps_of_llama_2(golden: GoldenRun) -> GoldenRun:
    return _config(golden, norm_eps=1e-6)


def gate_and_up_swapped(golden: GoldenRun) -> GoldenRun:
    return _layers(golden, 1, lambda layer: {"gate": layer.up, "up": layer.gate})


def scale_of_o_from_the_next_layer(golden: GoldenRun) -> GoldenRun:
    scale = golden.checkpoint.weights.layers[1].o.ternary().scale
    return _layers(golden, 1, lambda layer: {"o": InMemoryTernary(TernaryTensor(layer.o.ternary().trits, scale))})


def scale_of_gate_dropped(golden: GoldenRun) -> GoldenRun:
    one = np.asarray(np.float32(1))
    return _layers(golden, 1, lambda layer: {"gate": InMemoryTernary(TernaryTensor(layer.gate.ternary().trits, one))})


def _norm_dropped(golden: GoldenRun, name: str) -> GoldenRun:
    """It hands on what it is given, in the first layer."""
    dropped = getattr(golden.checkpoint.weights.layers[0], name)

    def norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        return x if gain is dropped else GOLDEN_ARITHMETIC.rms_norm(x, gain, eps)

    return _again(golden, replace(GOLDEN_ARITHMETIC, rms_norm=norm))


def attn_sub_norm_dropped(golden: GoldenRun) -> GoldenRun:
    return _norm_dropped(golden, "attn_sub_norm")


def ffn_sub_norm_dropped(golden: GoldenRun) -> GoldenRun:
    return _norm_dropped(golden, "ffn_sub_norm")


def all_sub_norms_dropped(golden: GoldenRun) -> GoldenRun:
    every = golden.checkpoint.config.layers
    without = _layers(golden, every, lambda layer: {"attn_sub_norm": None, "ffn_sub_norm": None})
    return _config(without, sub_norms=False)


def truncated_codes(golden: GoldenRun) -> GoldenRun:
    def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = GOLDEN_ARITHMETIC.quantize(x)[1]
        return np.trunc(x * scale[:, None]).astype(np.int8), scale

    return _again(golden, replace(GOLDEN_ARITHMETIC, quantize=quantize))


@dataclass(frozen=True)
class Fault:
    make: Callable[[GoldenRun], GoldenRun]
    case: str
    seen_at: str  # the first array that is wrong
    in_logits: bool = True  # whether the logits alone show it


FAULTS = [
    *(Fault(other_scale_direction, case, "layers.0.q.out") for case in CASES),
    *(Fault(all_sub_norms_dropped, case, "layers.0.attn_sub_norm") for case in CASES if case.startswith("bitnet")),
    Fault(interleaved_rows, BITNET, "layers.0.q.out"),
    Fault(interleaved_rows, LLAMA, "layers.0.q.out"),
    Fault(attn_sub_norm_dropped, BITNET, "layers.0.attn_sub_norm"),
    Fault(ffn_sub_norm_dropped, BITNET, "layers.0.ffn_sub_norm"),
    Fault(wrong_theta, BITNET, "layers.0.attn_sub_norm"),
    Fault(wrong_theta, LLAMA, "layers.0.o_in.codes"),
    Fault(gate_and_up_swapped, BITNET, "layers.0.gate.out"),
    Fault(gate_and_up_swapped, LLAMA, "layers.0.gate.out"),
    Fault(scale_of_o_from_the_next_layer, BITNET, "layers.0.o.out"),
    Fault(scale_of_o_from_the_next_layer, LLAMA, "layers.0.o.out"),
    Fault(scale_of_gate_dropped, BITNET, "layers.0.gate.out", in_logits=False),
    # It moves floats by 1e-5: three ties break, and after them the logits are right.
    Fault(eps_of_llama_2, BITNET, "layers.0.attn_norm", in_logits=False),
    Fault(truncated_codes, BITNET, "layers.0.attn_in.codes"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.make.__name__}-{f.case}")
def test_a_fault_is_seen_and_named(fault: Fault) -> None:
    right = judge(FIXTURES / fault.case)
    judged = judge_peer(fault.make(right.golden), right.peer, right.provenance)
    with pytest.raises(AssertionError, match=f"^{re.escape(fault.seen_at)}: "):
        assert_agrees(judged)
    failing = sum(not position.passed for position in judged.by_search.positions)
    assert (failing >= 30) if fault.in_logits else (failing == 0)


@pytest.mark.parametrize("case", [BITNET, LLAMA])
def test_another_linear_class_in_the_config_is_a_wrong_result_and_no_error(case: str, tmp_path: Path) -> None:
    right = judge(FIXTURES / case)
    for file in right.golden.checkpoint.path.iterdir():
        text = file.read_bytes()
        if file.name == "config.json":
            old, new = (b'"bitlinear"', b'"autobitlinear"')[:: -1 if case == BITNET else 1]
            assert old in text
            text = text.replace(old, new)
        (tmp_path / file.name).write_bytes(text)
    wrong = GoldenRun.of(open_checkpoint(tmp_path), right.golden.tokens)
    with pytest.raises(AssertionError, match=r"^layers\.0\.q\.out: "):
        assert_agrees(judge_peer(wrong, right.peer, right.provenance))
