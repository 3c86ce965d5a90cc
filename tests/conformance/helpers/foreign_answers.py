"""Folders of answers to the conformance cases, as an engine in another language would write them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tritgold_conformance.case_vectors.answers import Answer, answer
from tritgold_conformance.case_vectors.draft import Draft, Group
from tritgold_conformance.case_vectors.groups import golden, groups
from tritgold_conformance.faults.fault import Mutant


def write_answers(
    folder: Path,
    only: Callable[[Group], bool] = lambda group: True,
    mutant: Callable[[Group], Mutant] = golden,
    change: Callable[[Group, dict[str, np.ndarray], dict[str, object]], None] = lambda group, arrays, said: None,
) -> Path:
    """The mutant's answers to every case of some groups; ``change`` alters them before they are written."""
    for group in groups():
        if only(group):
            arrays, said = _of_group(group, mutant(group))
            change(group, arrays, said)
            (folder / group.name).mkdir(parents=True)
            (folder / group.name / "answer.json").write_text(json.dumps(said))
            if arrays:
                save_file(arrays, folder / group.name / "outputs.safetensors")
    return folder


def _of_group(group: Group, mutant: Mutant) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    arrays: dict[str, np.ndarray] = {}
    refused, texts = dict[str, str](), dict[str, list[str]]()
    for draft in group.drafts:
        found = answer(mutant, draft)
        if found.refused:
            refused[draft.name] = found.refused
        elif found.texts is not None:
            texts[draft.name] = found.texts
        arrays |= _named(draft, found)
    return arrays, {"protocol": "tritgold.command/1", "name": "foreign", "refused": refused, "texts": texts}


def _named(draft: Draft, found: Answer) -> dict[str, np.ndarray]:
    if draft.kind == "logits":
        return {str(draft.array_prefix): value for value in found.arrays.values()}
    return {f"{draft.array_prefix or draft.name}/{role}": value.copy() for role, value in found.arrays.items()}
