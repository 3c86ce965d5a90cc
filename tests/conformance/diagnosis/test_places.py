"""Faults at one place are named with it, from operations, traces, statistics and logits."""

import pytest
from diagnosed import asked, names
from library import model

from tritgold_conformance.faults import fault
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.places import place_of
from tritgold_conformance.faults.quick import quick

SEEN = (
    "norm-gain-plus-one@final_norm",
    "scale-never@o",
    "scale-never@layers.1.down",
    "kv-heads-tiled@layer=1",
    "norm-eps-1e-3@layers.0.attn_norm",
    "rope-backwards@layer=1",
    "linears-contribute-nothing@layers.1.up",
    "largest-scale-for-qkv@layer=1",
)
HEADS = ("scale-never@q,head=2", "rope-backwards@head=1", "mask-off-by-one@layers.1.probs,head=3")


def mutant(name: str) -> Mutant:
    made = fault(name).apply(quick(model("seeded")))
    assert made is not None
    return made


def same_place(found: str, planted: str) -> bool:
    """One fault, at the same operations and the same head, however they are written."""
    config = model("seeded").config
    (a, _, here), (b, _, there) = found.partition("@"), planted.partition("@")
    one, other = place_of(here, config), place_of(there, config)
    return a == b and one.head == other.head and one.names <= other.names


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("level", ["operations", "trace"])
def test_a_fault_at_a_place_is_named_with_it(name: str, level: str) -> None:
    found = asked(mutant(name), level=level)
    assert len(found.faults) == 1, names(found)
    told = [found.faults[0].fault, *found.faults[0].same]
    assert any("@" in one and same_place(one, name) for one in told), told
    assert found.unexplained == []


@pytest.mark.parametrize("name", HEADS)
def test_a_fault_at_a_head_is_named_with_it(name: str) -> None:
    found = asked(mutant(name))
    told = [one for named in found.faults for one in (named.fault, *named.same)]
    assert any("head=" in one and same_place(one, name) for one in told), told
    assert found.verdict == "named"


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("statistics", "scale-never@layers.1.down"),
        ("statistics", "norm-gain-plus-one@final_norm"),
        ("logits", "norm-gain-plus-one@final_norm"),
        ("logits", "kv-heads-tiled@layer=1"),
        ("logits", "scale-never@layers.0.o"),
    ],
)
def test_whole_runs_tell_a_place_too(level: str, name: str) -> None:
    found = asked(mutant(name), level=level)
    told = [one for named in found.faults for one in (named.fault, *named.same)]
    assert any("@" in one and same_place(one, name) for one in told), told


def test_what_is_wrong_everywhere_is_named_without_a_place() -> None:
    assert names(asked(mutant("kv-heads-tiled"))) == ["kv-heads-tiled"]
