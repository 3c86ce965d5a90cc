"""A fault at a place: which operations it changes, and what a place can be."""

import numpy as np
import pytest
from library import model

from tritgold.errors import EngineError
from tritgold_conformance.faults import FAULTS, fault
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.places import described, place_of
from tritgold_conformance.faults.quick import quick

TOKENS = list(range(3, 13))


@pytest.fixture(scope="module")
def base() -> Mutant:
    return quick(model("seeded"))


def trace(mutant: Mutant) -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        return FaultyEngine(mutant, len(TOKENS)).trace(TOKENS).arrays


def first_changed(base: Mutant, name: str) -> str | None:
    """Of the trace, in execution order."""
    made = fault(name).apply(base)
    assert made is not None
    golden, found = trace(base), trace(made)
    return next((key for key in golden if key in found and not np.array_equal(golden[key], found[key])), None)


@pytest.mark.parametrize(
    ("name", "place", "where"),
    [
        ("scale-never", "layer=1", "layers.1.q.out"),
        ("scale-never", "o", "layers.0.o.out"),
        ("scale-never", "layers.1.mlp.down_proj", "layers.1.down.out"),
        ("scale-never", "head=1", "layers.0.q.out"),
        ("scale-never", "k+v,layer=1", "layers.1.k.out"),
        ("kv-heads-tiled", "layer=1", "layers.1.probs"),
        ("linears-contribute-nothing", "layers.0.up", "layers.0.up.acc"),
        ("norm-gain-plus-one", "final_norm", "final_norm"),
        ("norm-eps-1e-3", "layers.1.ffn_norm", "layers.1.ffn_norm"),
        ("rope-theta-1e4", "layer=1", "layers.1.q_rope"),
        ("rope-backwards", "layer=1,head=1", "layers.1.q_rope"),
        ("half-up", "layers.0.down_in", None),
    ],
)
def test_nothing_before_the_place_changes(base: Mutant, name: str, place: str, where: str | None) -> None:
    assert first_changed(base, f"{name}@{place}") == where


def test_every_fault_at_a_layer_is_right_before_it(base: Mutant) -> None:
    golden, placed = trace(base), 0
    for name in FAULTS:
        made = fault(f"{name}@layer=1").apply(base)
        if made is None:
            continue
        found = trace(made)
        changed = [key for key in golden if key in found and not np.array_equal(golden[key], found[key])]
        assert not changed or changed[0].startswith("layers.1."), name
        placed += bool(changed)
    assert placed > 60


def test_a_head_alone_changes(base: Mutant) -> None:
    golden, made = trace(base), fault("scale-never@q,head=2").apply(base)
    assert made is not None
    size = base.config.head_dim
    off = (trace(made)["layers.0.q.out"] != golden["layers.0.q.out"]).reshape(len(TOKENS), -1, size).any(axis=(0, 2))
    assert off.tolist() == [head == 2 for head in range(base.config.heads)]


def test_everywhere_is_the_fault_itself(base: Mutant) -> None:
    whole, parts = fault("scale-never").apply(base), base
    for layer in range(base.config.layers):
        made = fault(f"scale-never@layer={layer}").apply(parts)
        assert made is not None
        parts = made
    assert whole is not None
    assert np.array_equal(trace(whole)["logits"], trace(parts)["logits"])
    assert parts.names == ("scale-never@layer=0", "scale-never@layer=1")


def test_no_such_place(base: Mutant) -> None:
    for text in ("layer=9", "head=9", "downn", "layer=0,layer=1"):
        with pytest.raises(EngineError, match="no such place"):
            fault(f"scale-never@{text}").apply(base)
    assert fault("eos-ignored@layer=1").apply(base) is None


def test_places_are_described_as_they_are_written(base: Mutant) -> None:
    for text in ("layer=1", "down", "layers.1.down", "final_norm"):
        names = place_of(text, base.config).names
        assert described(names, base.config) == text or text == "layer=1"
    odd = place_of("layers.0.q+layers.1.up", base.config).names
    assert place_of(described(odd, base.config), base.config).names == odd
