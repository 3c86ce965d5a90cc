"""Faults at a place: ``no-weight-scale@layer=3``, ``gain-plus-one@final_norm``, ``kv-heads-tiled@head=2``.

A place is a parameter of applying a fault, not another fault: what the fault changes is taken at the operations of the
place and is right elsewhere. Parts of a place, with commas between them, narrow it: ``layer=3``; an operation of one
layer, ``layers.3.down``; one of every layer, ``down``, or outside of them, ``final_norm``; several of them with
+ between them; ``head=2``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.graph import operations
from tritgold.layers.arithmetic import Arithmetic
from tritgold.trace_names import TraceName
from tritgold.weights import LINEARS, LayerWeights
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.place_heads import OF_HEADS, heads_of, weights_of_head

FUNCTIONS = tuple(f.name for f in fields(Arithmetic) if f.name not in ("alter", "place", "rotation_table"))
_FULL_NAMES = re.compile(r"(?:self_attn|mlp)\.(\w+?)(?:_proj)?$")
# Fields of the configuration that a function of the arithmetic is given, and that may so be others at a place.
_SETTINGS = {
    "norm_eps": "rms_norm", "activation": "gated_activation", "scale_rule": "apply_scales",
    "rope_theta": "rotate", "tied_head": "logits",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """names: of operations. head: of queries; None: all of them. text: as it is written."""

    text: str
    names: frozenset[str]
    head: int | None = None


def place_of(text: str, config: ModelConfig) -> Place:
    """The place in a model of this configuration. Raises EngineError, kind ``fault-place``, where it has none such."""
    found, head = {o.name for o in operations(config)}, None
    for part in text.split(","):
        key, _, number = part.partition("=")
        if number and key in ("layer", "head") and number.isdecimal():
            head = int(number) if key == "head" else head
            at = {o.name for o in operations(config) if key == "head" or o.at.layer == int(number)}
            at = {name for name in at if key == "layer" or TraceName.of(name).what in OF_HEADS}
        else:
            named = {_FULL_NAMES.sub(r"\1", name) for name in part.split("+")}
            at = {o.name for o in operations(config) if named & {o.name, o.at.what}}
        found &= at
    if not found or (head is not None and head >= config.heads):
        raise EngineError(
            "the model has no such place", kind="fault-place", got=repr(text),
            expected=f"layer=0 to layer={config.layers - 1}, an operation (layers.0.down, down, final_norm) or a head",
        )  # fmt: skip
    return Place(text, frozenset(found), head)


def described(names: frozenset[str], config: ModelConfig) -> str:
    """The shortest text of a place with these operations: one, one kind in all layers, a layer; else all of them."""
    if len(names) == 1:
        return next(iter(names))
    of_model = [o for o in operations(config) if o.at.layer is not None]
    at = [TraceName.of(name) for name in names]
    whats, layers = {name.what for name in at}, {name.layer for name in at}
    if len(whats) == 1 and layers == {o.at.layer for o in of_model}:
        return next(iter(whats))
    if len(layers) == 1 and None not in layers:
        return f"layer={next(iter(layers))}"
    return "+".join(sorted(names))


def fault_at(fault: Fault, text: str) -> Fault:
    """The fault at a place of whichever model it is applied to."""

    def change(s: Mutant) -> Mutant | None:
        return placed(s, fault, place_of(text, s.config))

    return replace(fault, name=f"{fault.name}@{text}", change=change)


def fault_in(fault: Fault, place: Place) -> Fault:
    """The fault at a place of one model."""
    return replace(fault, name=f"{fault.name}@{place.text}", change=lambda s: placed(s, fault, place))


def placed(s: Mutant, fault: Fault, place: Place) -> Mutant | None:
    """The mutant with the fault at the place alone; None where it cannot be there, or changes nothing there."""
    wrong = fault.change(s)
    if wrong is None or (wrong.unpack, wrong.decoding, wrong.text) != (s.unpack, s.decoding, s.text):
        return None
    if wrong.new_cache is not s.new_cache:  # a cache is of all layers
        return None
    differing = {f.name for f in fields(ModelConfig) if getattr(wrong.config, f.name) != getattr(s.config, f.name)}
    if differing - _SETTINGS.keys() or len(wrong.checkpoint.weights.layers) != len(s.checkpoint.weights.layers):
        return None
    changed = _functions(s, wrong, differing)
    weights, moved = _weights(s, wrong, place)
    alters = wrong.arithmetic.alter is not s.arithmetic.alter
    if place.head is not None:
        of_heads = {
            name: heads_of(name, getattr(s.arithmetic, name), f, place.head, s.config) for name, f in changed.items()
        }
        changed = {name: f for name, f in of_heads.items() if f is not None}
        alters = False
    if not (changed or moved or alters):
        return None
    made = _arithmetic(s, wrong, place, changed, alters)
    own_head = s.config.tied_head and weights.head is not None
    config = replace(s.config, tied_head=False) if own_head else s.config
    return replace(s, arithmetic=made, checkpoint=replace(s.checkpoint, weights=weights, config=config))


def _functions(s: Mutant, wrong: Mutant, differing: set[str]) -> dict[str, Callable[..., Any]]:
    """The functions that the fault replaces, and those that it gives other settings."""
    ours, theirs = s.arithmetic, wrong.arithmetic
    found = {name: getattr(theirs, name) for name in FUNCTIONS if getattr(theirs, name) is not getattr(ours, name)}
    c = wrong.config
    settings: dict[str, Callable[..., Any]] = {
        "norm_eps": lambda x, gain, eps: theirs.rms_norm(x, gain, c.norm_eps),
        "activation": lambda gate, up, activation: theirs.gated_activation(gate, up, c.activation),
        "scale_rule": lambda acc, scale, w, rule: theirs.apply_scales(acc, scale, w, c.scale_rule),
    }
    found |= {_SETTINGS[name]: settings[name] for name in differing & settings.keys()}
    if theirs.rotation_table is not ours.rotation_table or "rope_theta" in differing:
        found.setdefault("rotate", theirs.rotate)
    return found


def _arithmetic(
    s: Mutant, wrong: Mutant, place: Place, changed: Mapping[str, Callable[..., Any]], alters: bool
) -> Arithmetic:
    """changed: functions at the place. A rotation's table is made for both, and each rotation takes its own."""
    ours, theirs, c = s.arithmetic, wrong.arithmetic, wrong.config
    changed, everywhere = dict(changed), dict[str, Any]()
    if "rotate" in changed:
        right, turned = ours.rotate, changed["rotate"]
        everywhere["rotation_table"] = lambda positions, head_dim, theta, *scaling: (
            ours.rotation_table(positions, head_dim, theta, *scaling),
            theirs.rotation_table(
                positions, head_dim, theta if theta != s.config.rope_theta else c.rope_theta, *scaling
            ),
        )
        everywhere["rotate"] = lambda x, tables: right(x, tables[0])
        changed["rotate"] = lambda x, tables: turned(x, tables if place.head is not None else tables[1])
    before = ours.place

    def at(name: str, arithmetic: Arithmetic) -> Arithmetic:
        found = arithmetic if before is None else before(name, arithmetic)
        return replace(found, **changed) if name in place.names else found

    if alters:
        everywhere["alter"] = _altering(s, wrong, place)
    return replace(ours, place=at if changed else before, **everywhere)


def _altering(s: Mutant, wrong: Mutant, place: Place) -> Callable[..., np.ndarray]:
    ours, theirs = s.arithmetic.alter, wrong.arithmetic.alter
    writers = {name: o.name for o in operations(s.config) for name in o.writes.values()}

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        chosen = theirs if writers.get(name.partition(" [")[0]) in place.names else ours
        return value if chosen is None else chosen(name, value, seen)

    return alter


def _weights(s: Mutant, wrong: Mutant, place: Place) -> tuple[Any, bool]:
    """Weights with those of the place taken from the fault's; and whether any is another one."""
    ours, theirs, moved = s.checkpoint.weights, wrong.checkpoint.weights, False
    layers = []
    for number, (right, other) in enumerate(zip(ours.layers, theirs.layers, strict=True)):
        taken: dict[str, Any] = {}
        for f in fields(LayerWeights):
            mine, its = getattr(right, f.name), getattr(other, f.name)
            if mine is its or f"layers.{number}.{f.name}" not in place.names:
                continue
            if place.head is not None:
                its = weights_of_head(f.name, mine, its, place.head, s.config) if f.name in LINEARS else None
            if its is not None:
                taken[f.name] = its
        moved = moved or bool(taken)
        layers.append(replace(right, **taken))
    rest: dict[str, Any] = {}
    if place.head is None:
        if theirs.final_norm is not ours.final_norm and "final_norm" in place.names:
            rest["final_norm"] = theirs.final_norm
        if theirs.head_or_embedding is not ours.head_or_embedding:
            rest["head"] = (theirs if "logits" in place.names else ours).head_or_embedding
            moved = moved or "logits" in place.names
        if theirs.embedding is not ours.embedding and "embedding" in place.names:
            rest["embedding"] = theirs.embedding
    return replace(ours, layers=tuple(layers), **rest), moved or bool(rest.keys() - {"head"})
