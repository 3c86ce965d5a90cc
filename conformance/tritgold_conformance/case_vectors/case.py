"""The folder's JSON files as msgspec structures; the JSON schema is made from them and cannot drift."""

import inspect
from typing import Any, Literal

import msgspec

SCHEMA = "tritgold.vectors/1"
CASES, MANIFEST, INPUTS, EXPECTED = "cases.json", "manifest.json", "inputs.safetensors", "expected.safetensors"

Level = Literal["files", "operations", "logits", "generated", "text"]
Status = Literal["passed", "failed", "not assessed"]


class Allowed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far an answer may lie from the expected array.

    exact: equal, integers and floats alike. ulp: ``ulp`` units in the last place of the expected float32. bound: at
    most the array ``limit`` of expected.safetensors, elementwise. row: at most ``fraction`` of the largest magnitude
    of the expected row (the last axis). Below 2^-126 an answer may be flushed to zero. why: the reason for the width.
    """

    kind: Literal["exact", "ulp", "bound", "row"]
    why: str
    ulp: float | None = None
    limit: str | None = None
    fraction: float | None = None


class Output(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One array that is expected.

    array: its name, in expected.safetensors as in the answer's outputs.safetensors. dtype, shape: of the expected one;
    integers must be answered by integers of any width. optional: an engine that never has it may leave it out.
    """

    array: str
    dtype: str
    shape: list[int]
    allowed: Allowed
    optional: bool = False


class Case(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One vector, for one reason to fail.

    name: in its group; the id of a case is ``<group>/<name>``. kind: what is to be done, a row of docs/vectors.md.
    why: what this input shows. parameters: numbers and words that belong to it. seed: of the counter-based random
    numbers, if there are any. inputs: role -> array of inputs.safetensors. file: to be opened, in the group's folder.
    outputs: role -> what is expected. texts: expected texts. refused: the kind of failure that is expected instead.
    flags: names of the faults that it is made for, explained in the manifest.
    """

    name: str
    kind: str
    why: str
    parameters: dict[str, Any] = {}
    seed: int | None = None
    inputs: dict[str, str] = {}
    file: str | None = None
    outputs: dict[str, Output] = {}
    texts: list[str] | None = None
    refused: str | None = None
    flags: list[str] = []


class Cases(msgspec.Struct, kw_only=True):
    """cases.json: a group of cases that share a folder."""

    schema: str = SCHEMA
    group: str
    level: Level
    about: str
    cases: list[Case]


class Hash(msgspec.Struct, kw_only=True):
    """One file of the folder."""

    bytes: int
    sha256: str


class Flag(msgspec.Struct, kw_only=True):
    """A kind of bug: what is wrong (summary), what one sees (effect), where it was seen (links), ids that show it."""

    area: str
    summary: str
    effect: str
    links: list[str]
    cases: list[str]


class Provenance(msgspec.Struct, kw_only=True):
    """Who wrote the folder. No time, no machine and no version of NumPy: its bytes depend on none of them."""

    command: str
    tritgold: str
    mode: str
    protocol: str


class Manifest(msgspec.Struct, kw_only=True):
    """manifest.json. groups: folders, in order. files: path -> hash, of every file but this one. faults: name -> flag.

    unseen: faults that no case can show -> why.
    """

    schema: str = SCHEMA
    provenance: Provenance
    groups: list[str]
    cases: int
    files: dict[str, Hash]
    faults: dict[str, Flag]
    unseen: dict[str, str]


class Answers(msgspec.Struct, kw_only=True):
    """answer.json of a group, written by the engine that is judged. Every field is optional, and so is the file.

    refused: name of a case -> kind of failure, or ``unspecified`` if the engine does not tell it. texts: name -> texts.
    skipped: names of cases that the engine does not support; ``*`` at the end matches any ending.
    """

    protocol: str = ""
    name: str = ""
    versions: dict[str, str] = {}
    refused: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    skipped: list[str] = []


def json_schema() -> dict[str, Any]:
    """The JSON schema of manifest.json, cases.json and answer.json: one object with all three."""
    kinds: dict[str, Any] = {MANIFEST: Manifest, CASES: Cases, "answer.json": Answers}
    shown, parts = msgspec.json.schema_components(kinds.values(), ref_template="#/$defs/{name}")
    files = dict(zip(kinds, shown, strict=True))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, "anyOf": list(shown),
            "files": files, "$defs": _cleaned(parts)}  # fmt: skip


def _cleaned(schema: Any) -> Any:
    """With descriptions as Python 3.13 keeps docstrings; older ones keep the indentation of the source."""
    if isinstance(schema, dict):
        cleaned = {k: _cleaned(v) for k, v in schema.items()}
        said = schema.get("description")
        return {**cleaned, "description": inspect.cleandoc(said)} if isinstance(said, str) else cleaned
    return [_cleaned(item) for item in schema] if isinstance(schema, list) else schema


def encode(value: msgspec.Struct) -> bytes:
    """A structure as the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
