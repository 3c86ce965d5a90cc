"""The graph is the schema: a trace has its arrays, and an operation reads what those before it have written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.graph import TracedShape, operations, trace_names, traced_arrays
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold.trace_names import TraceName, by_token, token_axis
from tritgold.weights import ModelWeights

ODD = Shape(seed=3, hidden=24, inter=36, layers=2, heads=6, kv_heads=3, context=8)  # no two of its sizes are equal
TOKENS = [1, 2, 3]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ModelConfig, ModelWeights]]:
    folder = tmp_path_factory.mktemp("odd")
    write_seeded_model(folder, ODD)
    paths: dict[str, Path] = {"seeded": folder, "kjv-ar": trained_model("kjv-ar"), "kjv-dlm": trained_model("kjv-dlm")}
    opened = {name: open_checkpoint(path) for name, path in paths.items()}
    models = {name: (c.config, c.weights) for name, c in opened.items()}
    config, weights = models["seeded"]
    layers = tuple(replace(layer, attn_sub_norm=None, ffn_sub_norm=None) for layer in weights.layers)
    config = replace(config, activation="silu", sub_norms=False, scale_rule="divide", tied_head=False)
    return {"llama": (config, replace(weights, layers=layers, head=weights.embedding)), **models}


def differing(trace: Trace, config: ModelConfig) -> list[str]:
    """Names of arrays that are not as the graph says; all of them where the names or their order differ."""
    arrays, known = trace.arrays, traced_arrays(config)
    if list(arrays) != list(known):
        return sorted(arrays.keys() | known.keys())
    said = {name: (array.dtype, array.shape(config, len(TOKENS))) for name, array in known.items()}
    return [name for name, array in arrays.items() if (array.dtype, array.shape) != said[name]]


@pytest.mark.parametrize("name", ["seeded", "llama", "kjv-ar", "kjv-dlm"])
def test_a_trace_has_the_arrays_of_the_graph(models: dict[str, tuple[ModelConfig, ModelWeights]], name: str) -> None:
    config, weights = models[name]
    trace = Trace()
    forward(TOKENS, weights, config, trace=trace)
    assert differing(trace, config) == []
    assert trace.mode == "golden/1"
    for wrong in (trace["layers.1.probs"].swapaxes(0, 1), trace["layers.1.probs"].astype(np.float64)):
        changed = Trace(arrays=trace.arrays | {"layers.1.probs": wrong})
        assert differing(changed, config) == ["layers.1.probs"]
    del trace.arrays["final_norm"]
    assert len(differing(trace, config)) == len(trace.arrays) + 1


@pytest.mark.parametrize("sub_norms", [True, False])
def test_an_operation_reads_what_was_written_before_it(sub_norms: bool) -> None:
    written = {"tokens"}
    arrays = traced_arrays(TracedShape(3, sub_norms))
    for operation in operations(TracedShape(3, sub_norms)):
        assert written.issuperset(operation.reads.values()), operation.name
        assert all(array is arrays[array.name] for array in operation.inputs.values() if array.name != "tokens")
        written |= set(operation.writes.values())
    assert written - {"tokens"} == arrays.keys()


def test_the_graph_of_a_trace_is_that_of_its_model(models: dict[str, tuple[ModelConfig, ModelWeights]]) -> None:
    for config, _ in models.values():
        names = trace_names(config)
        assert trace_names(TracedShape.of(names)) == names
        assert [str(TraceName.of(name)) for name in names] == names


def test_an_operation_is_in_the_layer_of_what_it_writes() -> None:
    for operation in operations(TracedShape(11, True)):
        for role, name in operation.writes.items():
            taken = TraceName.of(name)
            assert taken.layer == operation.at.layer, name
            assert taken.role in ("", role), name
            assert token_axis(name) == operation.outputs[role].token_axis, name


@settings(max_examples=30)
@given(st.one_of(st.text(), st.from_regex(r"layers\.[0-9]{1,11}\.[a-z.]*(codes|\[x\])?")))
def test_any_text_is_a_name_and_stays_what_it_is(text: str) -> None:
    assert str(TraceName.of(text)) == text


@pytest.mark.parametrize(
    "name", ["layers.01.q.out", "layers.1234567890.q.out", "layers.-1.q.out", "layers.1.", "q.out"]
)
def test_what_has_no_layer_number_is_outside_the_layers(name: str) -> None:
    assert TraceName.of(name).layer is None


def test_softmax_weights_are_turned_tokens_first() -> None:
    probs = np.arange(24).reshape(2, 3, 4)
    assert by_token("layers.0.probs", probs).shape == by_token("layers.0.probs [scores of 200]", probs).shape == (3, 8)
    assert by_token("layers.0.probs", probs)[1].tolist() == [*probs[0, 1], *probs[1, 1]]
    assert by_token("probs", probs).shape == by_token("layers.0.q_rope", probs).shape == (2, 12)
    assert by_token("layers.0.q.scale", np.ones(3)).shape == (3, 1)
