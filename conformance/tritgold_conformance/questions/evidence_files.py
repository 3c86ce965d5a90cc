"""Evidence as a folder: evidence.json, and arrays in answers.safetensors. It can be judged without the engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from tritgold.errors import FormatError
from tritgold.formats.untrusted_text import printable, read_text
from tritgold.formats.whole_file import written_folder
from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.accuracy import exam_of
from tritgold_conformance.questions.behaviours import behaviours
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.evidence import PATHS, Evidence, OperationAnswer, Raised, Unpacked
from tritgold_conformance.questions.ladder import DEPTHS, ONE_TEXT, ladder_of
from tritgold_conformance.questions.packed_bytes import cases

SCHEMA = "tritgold.evidence/2"
JSON, ARRAYS = "evidence.json", "answers.safetensors"
_LARGEST = 1 << 28
_HINT = "tritgold ask --engine ENGINE -o FOLDER makes it again"
Given = bool | str  # False: no answer. True: an array, or arrays by role. Text: an error message


class _Saved(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """evidence.json: all fields of ``Evidence`` that are not arrays, and ``options``."""

    schema: str = SCHEMA
    name: str
    spec: str
    mode: str
    model_hash: str
    tokens: list[int]
    methods: list[str]
    options: list[str]
    depth: str
    seed: int
    refused: dict[str, str]
    versions: dict[str, str]
    machine: dict[str, str]
    reference: dict[str, str]
    packed: list[Given]
    operations: list[Given]
    edges: list[Given]
    statistics: dict[str, dict[str, float]]
    next_tokens: list[tuple[int, dict[int, float]] | None]
    answers: dict[str, list[int | str] | str | None]
    speed: Speed | None
    reference_speed: Speed | None


def write_evidence(folder: Path, evidence: Evidence, options: tuple[str, ...] = ()) -> None:
    """Write a new folder completely or not at all. options: of the command line, for ``repeat`` in the report."""
    arrays = {f"packed/{n}": a for n, a in enumerate(evidence.packed) if isinstance(a, np.ndarray)}
    for part in ("operations", "edges"):
        for n, outputs in enumerate(getattr(evidence, part)):
            if isinstance(outputs, dict):
                arrays |= {f"{part}/{n}/{role}": array for role, array in outputs.items()}
    arrays |= {f"trace/{name}": array for name, array in evidence.trace.items()}
    arrays |= {f"logits/{path}": rows for path, rows in evidence.logits.items()}
    arrays |= {f"answers/{label}": a for label, a in evidence.answers.items() if isinstance(a, np.ndarray)}
    arrays |= {f"timed/{call}": rows for call, rows in evidence.timed.items()}
    fields = {name: getattr(evidence, name) for name in _Saved.__struct_fields__ if name not in ("schema", "options")}
    fields |= {part: [_given(answer) for answer in fields[part]] for part in ("packed", "operations", "edges")}
    fields["answers"] = {label: None if isinstance(a, np.ndarray) else a for label, a in evidence.answers.items()}
    saved = _Saved(**fields, options=list(options))
    with written_folder(folder) as scratch:
        (scratch / JSON).write_bytes(msgspec.json.encode(_spelt(msgspec.to_builtins(saved, str_keys=True))))
        save_file({name: np.array(array, order="C") for name, array in arrays.items()}, scratch / ARRAYS)


def read_evidence(folder: Path) -> tuple[Evidence, tuple[str, ...]]:
    """The evidence in a folder, and the command-line options stored with it.

    Raises FormatError, kinds ``evidence-version``, ``evidence-malformed``.
    """
    path = folder / JSON
    try:
        raw = msgspec.json.decode(read_text(path, _LARGEST))
        schema = raw.get("schema") if isinstance(raw, dict) else None
        if schema != SCHEMA:
            got = printable(repr(schema))
            raise FormatError(
                "evidence of another version", kind="evidence-version", file=path, got=got, expected=SCHEMA, hint=_HINT
            )
        saved = msgspec.convert(_unspelt(raw), _Saved, str_keys=True)
        arrays = load_file(folder / ARRAYS)
        return _evidence(saved, arrays), tuple(saved.options)
    except FormatError:
        raise
    except OSError as error:
        name = Path(error.filename or path)
        raise FormatError(
            "does not exist or cannot be read", kind="evidence-malformed", file=name, hint=_HINT
        ) from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, SafetensorError) as error:
        raise FormatError(
            f"is not evidence: {printable(error)}", kind="evidence-malformed", file=folder, expected=SCHEMA, hint=_HINT
        ) from None


def require_evidence_of(evidence: Evidence, golden: GoldenRun, folder: Path) -> None:
    """Raise FormatError if the evidence is about another model, or its answers do not fit the golden run."""

    def require(thing: str, got: object, expected: object, kind: str = "evidence-malformed") -> None:
        if got != expected:
            raise FormatError(
                "is not about this golden run", kind=kind, file=folder, thing=thing, got=printable(got),
                expected=printable(expected), hint=_HINT,
            )  # fmt: skip

    require("model", evidence.model_hash, golden.trace.model_hash, "evidence-model")
    edges = sum(1 for _ in edge_inputs(golden))
    counts = {"packed": len(cases()), "operations": sum(1 for _ in golden.operations()), "edges": edges}
    counts["next_tokens"] = len(golden.tokens)
    for part, count in counts.items():
        found = len(getattr(evidence, part))
        require(part, found, count if found else 0)
    require("depth", evidence.depth in (ONE_TEXT, *DEPTHS), True)
    sizes = dict.fromkeys(PATHS, len(golden.tokens))
    ladder = ladder_of(golden.checkpoint.config, golden.tokens, evidence.depth, evidence.seed)
    if ladder is not None:
        sizes |= {rung.session.id: len(rung.session.tokens) for rung in ladder.rungs}
    labels = {q.label for q in behaviours(golden, evidence.methods)}
    exam = exam_of(golden.checkpoint, evidence.depth, evidence.seed)
    if not isinstance(exam, str):
        sizes |= {session.id: len(session.tokens) for session in exam.sessions(evidence.methods)}
        labels |= {*exam.labels}
    for path, rows in evidence.logits.items():
        require("logits", path in sizes, True)
        require(f"logits of {path}", rows.ndim, 2)
        require(f"rows of {path}", len(rows), sizes[path] if rows.size else 0)
    require("answers", sorted(evidence.answers.keys() - labels), [])


def _given(answer: OperationAnswer | Unpacked) -> Given:
    return answer.message if isinstance(answer, Raised) else answer is not None


def _evidence(saved: _Saved, arrays: Mapping[str, np.ndarray]) -> Evidence:
    def of(part: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}

    def outputs(part: str) -> list[OperationAnswer]:
        return [Raised(g) if isinstance(g, str) else of(f"{part}/{n}/") if g else None for n, g in
                enumerate(getattr(saved, part))]  # fmt: skip

    fields = {name: getattr(saved, name) for name in _Saved.__struct_fields__ if name not in ("schema", "options")}
    fields |= {
        "packed": [Raised(g) if isinstance(g, str) else arrays[f"packed/{n}"] if g else None for n, g in
                   enumerate(saved.packed)],
        "operations": outputs("operations"), "edges": outputs("edges"), "trace": of("trace/"), "logits": of("logits/"),
        "timed": of("timed/"),
        "answers": {n: arrays[f"answers/{n}"] if a is None else a for n, a in saved.answers.items()},
    }  # fmt: skip
    return Evidence(**fields)


_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _spelt(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by words: an engine may answer them."""
    if isinstance(value, float) and not np.isfinite(value):
        return {"number": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {key: _spelt(part) for key, part in value.items()}
    return [_spelt(part) for part in value] if isinstance(value, list | tuple) else value


def _unspelt(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"number"} and isinstance(value["number"], str):
            return _NUMBERS[value["number"]]
        return {key: _unspelt(part) for key, part in value.items()}
    return [_unspelt(part) for part in value] if isinstance(value, list) else value
