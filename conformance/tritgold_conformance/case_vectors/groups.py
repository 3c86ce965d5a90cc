"""All groups of cases, and each case with the golden model's answer."""

from collections.abc import Mapping
from functools import cache

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold_conformance.case_vectors import (
    cases_attention,
    cases_decode,
    cases_files,
    cases_malformed,
    cases_models,
    cases_operations,
)
from tritgold_conformance.case_vectors.allowed import as_data
from tritgold_conformance.case_vectors.answers import Answer, answer
from tritgold_conformance.case_vectors.case import Case, Output
from tritgold_conformance.case_vectors.draft import EXACT, Draft, Group
from tritgold_conformance.faults.fault import Mutant

_MODULES = (cases_files, cases_malformed, cases_operations, cases_attention, cases_models, cases_decode)


@cache
def groups() -> tuple[Group, ...]:
    """All groups in the order of the levels. Raises ValueError if two cases of a group have the same name."""
    found = tuple(group for module in _MODULES for group in module.groups())
    for group in found:
        names = [draft.name for draft in group.drafts]
        if len(set(names)) < len(names):
            raise ValueError(f"{group.name}: a name stands for two cases")
    return found


@cache
def spare_model() -> Checkpoint:
    """The model for groups without one: their faults are only in the arithmetic."""
    return cases_models.small()


def golden(group: Group) -> Mutant:
    """The golden model for a group."""
    return Mutant(group.model or spare_model())


def expected(group: Group, draft: Draft) -> Answer:
    """The golden answer. Raises ValueError if it is refused but should be accepted, or the other way round."""
    found = answer(golden(group), draft)
    if (found.refused or None) != draft.refused:
        raise ValueError(f"{group.name}/{draft.name}: {found.refused or 'accepted'}, expected {draft.refused}")
    return found


def stored(
    draft: Draft, found: Answer, flags: Mapping[str, list[str]], case_id: str
) -> tuple[Case, dict[str, np.ndarray]]:
    """The case as data, and the arrays of expected.safetensors that belong to it."""
    arrays, outputs = {}, {}
    for role, value in found.arrays.items():
        name = f"{draft.array_prefix or draft.name}/{role}" if draft.kind != "logits" else str(draft.array_prefix)
        arrays[name] = value
        allowed, limit = as_data(draft.allowed.get(role, EXACT), name, value.shape)
        if limit is not None and allowed.limit:
            arrays[allowed.limit] = limit
        outputs[role] = Output(array=name, dtype=str(value.dtype), shape=list(value.shape), allowed=allowed,
                               optional=role in draft.optional)  # fmt: skip
    case = Case(
        name=draft.name,
        kind=draft.kind,
        why=draft.why,
        parameters=dict(draft.parameters),
        seed=draft.seed,
        inputs={role: input_name(draft, role) for role in draft.inputs},
        file=draft.file and draft.file[0],
        outputs=outputs,
        texts=found.texts,
        refused=draft.refused,
        flags=flags.get(case_id, []),
    )
    return case, arrays


def input_name(draft: Draft, role: str) -> str:
    """The name of an array of inputs.safetensors."""
    return f"{draft.array_prefix or draft.name}/{role}"
