"""Every operation of the graph alone: against the golden model, and against the engine's own whole pass."""

import numpy as np
import pytest

from tritgold.errors import ContextError, EngineError, NonFiniteError
from tritgold.graph import operations

NAMES = ["seeded", "llama", "mixed"]
EXACT = {"embedding", "quantize", "bit_linear", "add"}
# Relative to the largest value of the output. Measured: 1.1e-6 at most (softmax, logits).
NOISE = 4e-6


def inputs_of(operation, trace):
    tokens = np.array(trace.tokens, np.int64)
    return {role: tokens if name == "tokens" else trace[name] for role, name in operation.reads.items()}


@pytest.mark.parametrize("name", NAMES)
def test_on_golden_inputs(cases, name):
    case = cases[name]
    for operation in operations(case.config):
        outputs = case.engine.operation(operation.name, inputs_of(operation, case.golden))
        assert list(outputs) == list(operation.writes)
        for role, written in operation.writes.items():
            got, golden = outputs[role], case.golden[written]
            assert (got.dtype, got.shape) == (golden.dtype, golden.shape), written
            if operation.kind in EXACT:
                np.testing.assert_array_equal(got.view(np.uint8), golden.view(np.uint8), err_msg=written)
            else:
                assert np.abs(got - golden).max() <= NOISE * np.abs(golden).max(), written


@pytest.mark.parametrize("name", NAMES)
def test_alone_and_in_the_whole_pass_give_the_same_bits(cases, name):
    case = cases[name]
    for operation in operations(case.config):
        outputs = case.engine.operation(operation.name, inputs_of(operation, case.trace))
        for role, written in operation.writes.items():
            if operation.kind == "lm_head":  # a matrix product of another number of rows: another order of summation
                np.testing.assert_allclose(outputs[role], case.trace[written], rtol=0, atol=1e-4)
            else:
                np.testing.assert_array_equal(outputs[role], case.trace[written], err_msg=written)


def test_what_does_not_fit_is_refused(cases):
    engine, golden = cases["llama"].engine, cases["llama"].golden
    codes, scale = golden["layers.0.attn_in.codes"], golden["layers.0.attn_in.scale"]
    for inputs in (
        {"codes": codes},
        {"codes": codes, "scale": scale, "x": scale},
        {"codes": codes.astype(np.int32), "scale": scale},
        {"codes": codes[:, 1:], "scale": scale},
        {"codes": codes[:3], "scale": scale},
        {"codes": codes[:0], "scale": scale[:0]},
        {"codes": codes[0], "scale": scale},
        {"codes": np.tile(codes, (5, 1)), "scale": np.tile(scale, 5)},  # more tokens than the cache has room for
    ):
        with pytest.raises(EngineError, match=r"layers\.0\.q: .*operation-inputs"):
            engine.operation("layers.0.q", inputs)
    with pytest.raises(EngineError, match="operation-name"):
        engine.operation("layers.3.q", {"codes": codes, "scale": scale})
    with pytest.raises(ContextError, match="token-id"):
        engine.operation("embedding", {"tokens": np.array([0, 101])})


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_quantising_what_is_not_finite_is_refused_by_name(cases, value):
    x = cases["llama"].golden["layers.1.ffn_norm"].copy()
    x[-1, 5] = value
    with pytest.raises(NonFiniteError, match=r"layers\.1\.ffn_in: .*activation-non-finite"):
        cases["llama"].engine.operation("layers.1.ffn_in", {"x": x})
