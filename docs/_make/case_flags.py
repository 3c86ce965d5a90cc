"""Which cases show which fault: each fault is applied to the golden model, and its answers are judged like an engine's.

``make cases`` writes the shipped manifest again, after cases or faults changed: every fault against every case, which
takes minutes. It is reviewed like source: a hash that changes is an expected output that changes. The table is
recorded, since a case is there for a few bugs and not for all that it happens to show; a test computes it again.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.case_vectors import cases_models, manifest
from tritgold_conformance.case_vectors.answers import Answer, answer
from tritgold_conformance.case_vectors.case import MANIFEST, encode
from tritgold_conformance.case_vectors.draft import EXACT, Draft, Group
from tritgold_conformance.case_vectors.groups import expected, groups, spare_model
from tritgold_conformance.case_vectors.write import UNSEEN, write
from tritgold_conformance.comparing.compare import compare
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant

MOST = 4  # cases that a fault is recorded with: those that show the fewest others


def all_drafts() -> Iterator[tuple[Group, Draft, str]]:
    """Every case, with its id."""
    for group in groups():
        for draft in group.drafts:
            yield group, draft, f"{group.name}/{draft.name}"


def shows(group: Group, draft: Draft, right: Answer, fault: str) -> bool:
    """Whether the golden model with the fault fails this case. Not so where it raises what is not an answer."""
    made = with_fault(group.name if group.model else "", fault)
    if made is None or not _reads(draft, made):
        return False
    try:
        with np.errstate(all="ignore"):
            return fails(draft, right, answer(made, draft))
    except Exception:  # an array that the fault's own code cannot take: a crash is not an answer
        return False


@cache
def with_fault(group: str, fault: str) -> Mutant | None:
    """The model of a group with a fault; None where it has no place for it.

    Cases without a model are answered by one of each family, as there are faults that have a place in one only.
    """
    models = [g.model for g in groups() if g.name == group and g.model]
    models = models or [spare_model(), cases_models.llama(), cases_models.wide()]
    made = (FAULTS[fault].apply(Mutant(model)) for model in models)
    return next((mutant for mutant in made if mutant is not None), None)


def _reads(draft: Draft, made: Mutant) -> bool:
    """Whether the answer can depend on what the fault has changed; decode loops are asked about decoding alone."""
    match draft.kind:
        case "unpack":
            return made.unpack is not None
        case "operation" | "logits":
            return not (made.decoding or made.text)
        case "generate" | "serve" | "diffuse":
            return bool(made.decoding)
        case "encode" | "chat" | "stream":
            return bool(made.text)
        case "open" | "kv" | "kv_load" | "add":
            return False
        case _:
            return made.arithmetic != GOLDEN_ARITHMETIC


def fails(draft: Draft, right: Answer, given: Answer) -> bool:
    """Whether an answer is wrong, by the case's own tolerances."""
    if right.refused or given.refused:
        return right.refused != given.refused
    if right.texts is not None:
        return right.texts != given.texts
    return any(
        not compare(role, value, given.arrays.get(role), draft.allowed.get(role, EXACT)).passed
        for role, value in right.arrays.items()
    )


def found_flags(only: str = "") -> dict[str, list[str]]:
    """Fault -> ids of all cases that show it. only: the name of one fault."""
    seen: dict[str, list[str]] = {name: [] for name in FAULTS if only in ("", name)}
    for group, draft, case in all_drafts():
        right = expected(group, draft)
        for name, cases in seen.items():
            if shows(group, draft, right, name):
                cases.append(case)
    return seen


def most_telling(seen: dict[str, list[str]]) -> dict[str, list[str]]:
    """Of each fault the MOST cases that show the fewest faults, in the order of the cases."""
    shown = [case for cases in seen.values() for case in cases]
    count = {case: shown.count(case) for case in set(shown)}
    return {
        name: sorted(sorted(cases, key=lambda case: (count[case], cases.index(case)))[:MOST], key=cases.index)
        for name, cases in seen.items()
    }


def main() -> int:
    """Write the manifest that ships; 1 where a fault is shown by no case and UNSEEN does not say why."""
    seen = found_flags()
    unexplained = [name for name, cases in seen.items() if not cases and name not in UNSEEN]
    if unexplained:
        print(f"shown by no case, and no reason given: {', '.join(unexplained)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        made = write(Path(folder) / "vectors", most_telling(seen))
    Path(manifest.__file__).with_name(MANIFEST).write_bytes(encode(made))
    print(f"{made.cases} cases in {len(made.groups)} groups, {len(made.faults)} faults", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
