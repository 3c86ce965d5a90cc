"""A step of the golden model by its functions; decoding with the collector on and off."""

import gc
from pathlib import Path

import numpy as np
import pytest

from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.reference_profile import parts
from tritgold_conformance.bench.rows import Rows
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.golden.reference_engine import ReferenceEngine


def test_every_function_of_a_step_is_a_part(tmp_path: Path) -> None:
    shape = ModelShape("tiny", 2, 256, 512, 4, 2, 64, 64, context=128)
    engine = ReferenceEngine(quietly_opened(synthetic_model(shape, tmp_path)), 16)
    for _ in range(2):  # another round goes on from the same context
        found = {part["name"]: part for part in parts(engine, 5)}
        assert {name: part["calls"] for name, part in found.items()} == {
            "embed": 1, "rotation_table": 1, "rms_norm": 9, "quantize": 8, "accumulate": 14, "apply_scales": 14,
            "rotate": 4, "softmax_weights": 2, "mix_values": 2, "gated_activation": 2, "logits": 1,
        }  # fmt: skip
        assert all(part["seconds"] > 0 for part in found.values())


@pytest.mark.parametrize(("way", "enabled"), [("on", True), ("off", False), ("each token", True)])
def test_the_collector_is_as_asked_while_a_model_decodes(
    way: str, enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, collected = list[bool](), list[int]()

    class Engine:
        def reset(self) -> None: ...

        def read(self, tokens: list[int]) -> np.ndarray:
            return np.zeros(8)

        def step(self, token: int) -> np.ndarray:
            seen.append(gc.isenabled())
            return np.zeros(8)

    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    rows = Rows(Engine(), 8, 64)
    case = {"gc": way, "context": 4, "steps": 3}
    assert len(rows.measure("gc", case)["seconds"]) == 3
    assert seen == [enabled] * 4  # one to make ready
    assert len(collected) == (4 + 2 if way == "each token" else 2)
    assert gc.isenabled()
