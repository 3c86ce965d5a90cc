"""Faults at a place, where none of the library explains an engine everywhere: which operations it is wrong at.

A candidate that explains the first divergence and spoils other outputs, which are right, is the fault at a place: at
the operations that it explains. Where an output is wrong at one head, each fault that moves it is tried there.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from tritgold.graph import operations
from tritgold.trace_names import TraceName
from tritgold_conformance.diagnosis.per_operation import Local
from tritgold_conformance.diagnosis.replay import operation_of, same_operation
from tritgold_conformance.diagnosis.rules import Label, Match, Near
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.place_heads import OF_HEADS
from tritgold_conformance.faults.places import Place, described, fault_at, fault_in
from tritgold_conformance.results.diagnosis import Divergence


def at_places(
    local: Local, near: Iterable[Near], spoiling: Iterable[Match], mutant: Mutant, failing: list[Label]
) -> Iterator[Fault]:
    """Faults at places that may explain the first of the outputs that fail.

    near: candidates that move it. spoiling: those that explain it and spoil others.
    """
    writers = {name: operation.name for name, (operation, _) in operation_of(local.base).items()}

    def wrong_at(labels: Iterable[Label]) -> frozenset[str]:
        return frozenset(writers[name.partition(" [")[0]] for _, name in labels)

    wrong = set(failing)
    for match in spoiling:
        left = set(match.scan.failing)
        names = wrong_at(wrong - left) - wrong_at(left - wrong)
        if names:
            yield fault_in(match.fault, Place(described(names, mutant.config), names))
    head = _head(local, failing[0])
    if head is not None:
        for n in near:
            yield from _at_head(n.fault, head, wrong_at(failing), mutant)


def _at_head(fault: Fault, head: int, names: frozenset[str], mutant: Mutant) -> Iterator[Fault]:
    of_heads = frozenset(name for name in names if TraceName.of(name).what in OF_HEADS)
    if of_heads:
        yield fault_in(fault, Place(f"{described(of_heads, mutant.config)},head={head}", of_heads, head))


def _head(local: Local, label: Label) -> int | None:
    """The query head at which alone an output is wrong; the first of its group, where keys or values are; else None."""
    name, config = TraceName.of(label[1]), local.base.config
    golden, theirs = local.golden_values[label], np.asarray(local.theirs(label))
    what = name.what.removeprefix("q_").removeprefix("k_")
    if what not in OF_HEADS or golden.shape != theirs.shape:
        return None
    keys = name.what in ("k", "v", "k_rope")
    count = config.kv_heads if keys else config.heads
    axis = golden if name.what == "probs" else np.moveaxis(golden.reshape(len(golden), count, -1), 1, 0)
    other = theirs if name.what == "probs" else np.moveaxis(theirs.reshape(len(theirs), count, -1), 1, 0)
    size = np.abs(axis.astype(np.float64)).max()
    off = np.abs(other.astype(np.float64) - axis).reshape(count, -1).max(axis=1) > 1e-5 * size
    if off.sum() != 1 or count == 1:
        return None
    return int(np.argmax(off)) * (config.heads // count)


def in_whole_runs(faults: Iterable[Fault], mutant: Mutant, here: Divergence | None, tokens: int) -> list[Fault]:
    """Faults at places that are worth a run each: outside the layers, in one layer, one kind of operation, one.

    here: where statistics first leave the golden model, which tells the layer; None: of logits, which tell none. As
    many as AFFORDABLE allows.
    """
    of_model = list(operations(mutant.config))
    weights = sum(int(np.prod(w.shape)) for _, w in mutant.checkpoint.weights.linears())
    most = min(MOST_RUNS, int(AFFORDABLE / max(1, weights * tokens)))
    tiers: list[list[Fault]] = [[], [], [], []]
    for fault in faults:
        made = fault.apply(mutant)
        if made is None:
            continue
        touched = [o for o in of_model if not same_operation(made, mutant, o)]
        if len(touched) < 2:
            continue  # it is at one place already
        layers = sorted({o.at.layer for o in touched if o.at.layer is not None})
        whats = {o.at.what for o in touched}
        if here is not None:
            layers = [n for n in layers if n == here.layer]
            whats &= {TraceName.of(here.operation).what}
            touched = [o for o in touched if o.name == here.operation]
        outside = {o.name for o in touched if o.at.layer is None}
        somewhere = len(whats) < len({o.at.what for o in of_model})
        tiers[0] += [fault_at(fault, name) for name in sorted(outside) if somewhere]
        if sum(map(len, tiers)) > 4 * most:
            continue  # few places are outside the layers: these are tried of every fault
        tiers[1] += [fault_at(fault, f"layer={n}") for n in layers]
        if somewhere:
            tiers[2] += [fault_at(fault, what) for what in sorted(whats - outside)]
            tiers[3] += [fault_at(fault, o.name) for o in touched if o.at.layer is not None]
    return [fault for tier in tiers for fault in tier][:most]


AFFORDABLE, MOST_RUNS = 1.6e10, 400  # weights x tokens x runs: some seconds
