"""Writes the folder. Its bytes depend only on the version of tritgold: not on time, machine, NumPy or set order."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from tritgold.formats.container import PlannedTensor
from tritgold.formats.safetensors_writer import write_safetensors
from tritgold.formats.whole_file import written_folder
from tritgold_conformance.case_vectors.case import (
    CASES,
    EXPECTED,
    INPUTS,
    MANIFEST,
    SCHEMA,
    Cases,
    Manifest,
    encode,
    json_schema,
)
from tritgold_conformance.case_vectors.draft import Group
from tritgold_conformance.case_vectors.groups import expected, groups, input_name, stored
from tritgold_conformance.case_vectors.manifest import flags, hashes, provenance, recorded
from tritgold_conformance.engines.exchange import write_model, write_requests

SCHEMA_FILE = "schema.json"
# Fault -> reason why no case can show it; a test checks that it is true.
UNSEEN: dict[str, str] = {}
_DTYPES = {"int8": "I8", "uint8": "U8", "int32": "I32", "int64": "I64", "float32": "F32", "float64": "F64"}


def write(folder: Path, faults: dict[str, list[str]] | None = None) -> Manifest:
    """Write all groups and the manifest into a new folder, completely or not at all.

    faults: fault -> cases, by default those of the recorded manifest. Raises OutputError as ``written_folder`` does.
    """
    by_fault = {name: flag.cases for name, flag in recorded().faults.items()} if faults is None else faults
    by_case = flags_of_cases(by_fault)
    with written_folder(folder) as scratch:
        for group in groups():
            _write_group(scratch / group.name, group, by_case)
        text = json.dumps(json_schema(), indent=1) + "\n"
        (scratch / SCHEMA_FILE).write_bytes(text.encode())
        manifest = Manifest(
            provenance=provenance(),
            groups=[group.name for group in groups()],
            cases=sum(len(group.drafts) for group in groups()),
            files=hashes(scratch),
            faults=flags(by_fault),
            unseen=UNSEEN,
        )
        (scratch / MANIFEST).write_bytes(encode(manifest))
    return manifest


def _write_group(folder: Path, group: Group, flags_of: Mapping[str, list[str]]) -> None:
    folder.mkdir(parents=True)
    cases, right, given = [], dict[str, np.ndarray](), dict[str, np.ndarray]()
    for draft in group.drafts:
        case, arrays = stored(draft, expected(group, draft), flags_of, f"{group.name}/{draft.name}")
        cases.append(case)
        right |= arrays
        given |= {input_name(draft, role): value for role, value in draft.inputs.items()}
        if draft.file is not None:
            (folder / draft.file[0]).write_bytes(draft.file[1])
    for name, raw in group.files.items():
        (folder / name).write_bytes(raw)
    if group.model is not None and group.carried:
        write_model(folder, group.model, None)
    if group.requests is not None:
        write_requests(folder, group.requests)  # inputs.safetensors is written again below by tritgold's own writer
    if given:
        write_arrays(folder / INPUTS, given)
    if right:
        write_arrays(folder / EXPECTED, right)
    whole = Cases(schema=SCHEMA, group=group.name, level=group.level, about=group.about, cases=cases)
    (folder / CASES).write_bytes(encode(whole))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A safetensors file of arrays, little-endian."""
    plan = []
    for name, value in arrays.items():
        raw = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()
        plan.append(PlannedTensor(name, _DTYPES[value.dtype.name], value.shape, len(raw), partial(list, (raw,))))
    write_safetensors(path, plan, {})


def flags_of_cases(faults: dict[str, list[str]]) -> dict[str, list[str]]:
    """The inverse of the table: case -> faults."""
    by_case: dict[str, list[str]] = {}
    for name, cases in faults.items():
        for case in cases:
            by_case.setdefault(case, []).append(name)
    return by_case
