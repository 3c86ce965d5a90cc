"""The parts of a decode step: each operation of the graph, and the bytes that it reads."""

import importlib.util
from pathlib import Path

import pytest

from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model

pytest.importorskip("jax")
if importlib.util.find_spec("tritgold_xla.ternary_matmul.kernels") is None:
    pytest.skip("the engine has no formulations yet", allow_module_level=True)


def test_every_operation_of_a_step_is_a_part(tmp_path: Path) -> None:
    from tritgold_conformance.engines import xla, xla_profile

    shape = ModelShape("tiny", 2, 256, 512, 4, 2, 64, 64, context=128)
    engine = xla.open_engine(quietly_opened(synthetic_model(shape, tmp_path)), 64)
    parts = {part.name: part for part in xla_profile.operations(engine, 5)}
    sizes = xla.sizes(engine)
    norms = {"attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm", "final_norm"}
    codes = {"attn_in codes", "o_in codes", "ffn_in codes", "down_in codes"}
    linears = {"q", "k", "v", "o", "gate", "up", "down"}
    assert norms | codes | linears | {"rope", "attention", "activation", "residual", "head"} <= parts.keys()
    assert sum(parts[name].moved for name in linears) == sizes["packed"]
    assert parts["head"].moved == sizes["head"]
    assert parts["attention"].moved == 6 * sizes["kv"]
    assert {name: part.calls for name, part in parts.items() if part.calls != 2} == {
        "residual": 4, "final_norm": 1, "head": 1,
    }  # fmt: skip
    for part in parts.values():
        assert part.seconds() > 0
    engine.reset()
    assert engine.step(3).shape == (64,)  # the engine's own cache was not taken
