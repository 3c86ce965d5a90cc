"""The two folders through which the judge and a program communicate (docs/command-protocol.md).

Files of a program are untrusted, and are read with tritgold's own strict reader.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError, FormatError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.formats.safetensors_writer import write_safetensors
from tritgold.formats.untrusted_text import parse_json, printable, read_text
from tritgold.ternary import DenseMatrix, LinearWeight
from tritgold.weights import LINEARS, VECTORS, ModelWeights
from tritgold_conformance.contract import answer_shapes
from tritgold_conformance.contract.answer_shapes import Shape
from tritgold_conformance.contract.session import Session, usual_calls
from tritgold_conformance.engines.host import PROTOCOL as PROTOCOL  # named here by its readers
from tritgold_conformance.questions.request_batch import RequestBatch

OUTPUTS, ANSWER = "outputs.safetensors", "answer.json"
ROWS = 1024  # rows of a float matrix that are converted to float32 at a time
MAX_ANSWER = 1 << 22  # bytes of answer.json
MAX_TOLD = 1000  # characters of one message in answer.json
NUMBERS = {"I8": "i1", "U8": "u1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F32": "<f4", "F64": "<f8"}


@dataclass(frozen=True)
class Answer:
    """The answer of a program. name, versions, seconds: what it reports about itself, empty if it reports nothing.

    refused: ids of files that it refused. raised: error messages by the name of the question. behaviours: JSON values
    by id. clock, mode, policy, methods: of a class, reported by its host.
    """

    arrays: dict[str, np.ndarray]
    name: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    raised: dict[str, str] = field(default_factory=dict)
    behaviours: dict[str, Any] = field(default_factory=dict)
    clock: str = ""
    mode: str = "golden"
    policy: str = "float32"
    methods: tuple[str, ...] = ()


class EngineOwnError(Exception):
    """The error of an engine in its own process, as text: the cause of the EngineError here."""


def write_model(folder: Path, checkpoint: Checkpoint, path: Path | None, with_weights: bool = True) -> None:
    """Write config.json and model.safetensors. path: the checkpoint's path, for programs that read it themselves.

    with_weights: False for tritgold's own programs, which never read model.safetensors.
    """
    where = None if path is None else str(path.resolve())
    config = {"protocol": PROTOCOL, **checkpoint.config.as_dict(), "checkpoint": where}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if with_weights:
        write_safetensors(folder / "model.safetensors", _weights(checkpoint.weights), {})


def _weights(weights: ModelWeights) -> Iterator[PlannedTensor]:
    """Every tensor of model.safetensors (docs/command-protocol.md), with one matrix in memory at a time."""
    yield _matrix("embedding", weights.embedding)
    yield _gain("final_norm", weights.final_norm)
    if weights.head is not None:
        yield _matrix("head", weights.head)
    for index, layer in enumerate(weights.layers):
        for name in LINEARS:
            yield from _linear(f"layers.{index}.{name}", layer.linear(name))
        for name in VECTORS:
            if (gain := getattr(layer, name)) is not None:
                yield _gain(f"layers.{index}.{name}", gain)


def _matrix(name: str, matrix: DenseMatrix) -> PlannedTensor:
    rows, columns = matrix.shape
    parts = (slice(first, min(first + ROWS, rows)) for first in range(0, rows, ROWS))
    return PlannedTensor(
        name, "F32", (rows, columns), 4 * rows * columns, lambda: (matrix.rows(part).tobytes() for part in parts)
    )


def _gain(name: str, gain: np.ndarray) -> PlannedTensor:
    return PlannedTensor(name, "F32", gain.shape, 4 * gain.size, lambda: [gain.astype("<f4").tobytes()])


def _linear(name: str, weight: LinearWeight) -> Iterator[PlannedTensor]:
    rows, columns = weight.shape
    yield PlannedTensor(
        f"{name}.trits", "I8", (rows, columns), rows * columns, lambda: [weight.ternary().trits.tobytes()]
    )
    scale = weight.ternary().scale  # [], or [out, 1] if each row has its own scale
    yield PlannedTensor(f"{name}.scale", "F32", scale.shape, 4 * scale.size, lambda: [scale.astype("<f4").tobytes()])


def write_requests(folder: Path, asked: RequestBatch) -> None:
    """Write requests.json and inputs.safetensors. An input that several operations share is stored once."""
    arrays: dict[str, np.ndarray] = {}
    requested = []
    for number, one in enumerate(asked.operations):
        names = {role: one.shared.get(role, f"operation/{number}/{role}") for role in one.inputs}
        arrays |= {names[role]: array for role, array in one.inputs.items()}
        requested.append({"id": str(number), "operation": one.operation.name, "inputs": names})
    requests: dict[str, Any] = {"protocol": PROTOCOL, "operations": requested}
    requests["trace"] = {"tokens": asked.trace} if asked.trace else None
    requests["logits"] = [_session(session) for session in asked.sessions]
    requests["text"] = {"tokens": asked.text} if asked.text else None
    requests["statistics"] = {"tokens": asked.statistics} if asked.statistics else None
    requests["files"] = [
        {"id": str(number), "format": case.format, "shape": list(case.shape), "data": f"files/{number}"}
        for number, case in enumerate(asked.files)
    ]
    if asked.behaviours:
        behaviours = enumerate(asked.behaviours)
        requests["behaviours"] = [{"id": str(n), "method": b.method, "arguments": b.arguments} for n, b in behaviours]
    if asked.speed:
        requests["speed"] = {"tokens": asked.speed}
    arrays |= {f"files/{number}": np.frombuffer(case.data, np.uint8) for number, case in enumerate(asked.files)}
    (folder / "requests.json").write_text(json.dumps(requests, indent=1))
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, folder / "inputs.safetensors")


def _session(session: Session) -> dict[str, Any]:
    """The JSON of a session, without the fields that have their default."""
    more = {"calls": session.calls, "contained": session.contained, "beside": session.beside}
    if session.calls == usual_calls(session.chunks):
        del more["calls"]
    said = {key: value for key, value in more.items() if value}
    return {"id": session.id, "tokens": session.tokens, "chunks": session.chunks, **said}


def read_answer(folder: Path, allowed: Mapping[str, Shape | None], thing: str) -> Answer:
    """The answer of a program; its arrays are copied, so that the folder may be deleted.

    allowed: names and shapes. Raises EngineError, kind ``engine-output``, for a file that is missing, not a regular
    file, damaged or of another protocol, and for an array that was not requested or has a wrong shape or dtype.
    """
    try:
        header = parse_json(read_text(_plain(folder, ANSWER, thing), MAX_ANSWER))
    except (OSError, ValueError) as error:
        raise _refused(f"{ANSWER} cannot be read: {printable(error)}", thing) from None
    except FormatError as error:
        raise _refused(f"{ANSWER}: {error.message}", thing) from None
    if not isinstance(header, dict) or header.get("protocol") != PROTOCOL:
        got = header.get("protocol") if isinstance(header, dict) else type(header).__name__
        raise _refused(f"{ANSWER} is of another protocol", thing, printable(repr(got)), PROTOCOL)
    _raise_error(header.get("error"), thing)
    try:
        seconds = answer_shapes.seconds(header.get("seconds") or {})
    except EngineError as error:
        raise _refused(f"{ANSWER}: seconds {error.message}", thing, error.got, error.expected) from None
    try:
        stored = SafetensorsFile(_plain(folder, OUTPUTS, thing)).tensors
    except FormatError as error:  # the file name is left out: its folder is deleted before anybody reads the message
        where = f"{error.thing}: " if error.thing else ""
        raise _refused(f"{OUTPUTS}: {where}{error.message}", thing, error.got, error.expected) from None
    arrays = {name: _array(tensor, allowed, thing) for name, tensor in stored.items()}
    refused = header.get("refused") or []
    if not isinstance(refused, list) or not all(isinstance(number, str) for number in refused):
        raise _refused(f"{ANSWER}: refused is not a list of ids", thing, printable(repr(refused)), 'like ["7"]')
    versions, raised, behaviours = (_object(header, key, thing) for key in ("versions", "raised", "behaviours"))
    return Answer(
        arrays,
        printable(header.get("name") or ""),
        {printable(key): printable(value) for key, value in list(versions.items())[:20]},
        seconds,
        tuple(refused),
        {name: printable(message, MAX_TOLD) for name, message in raised.items()},
        behaviours,
        printable(header.get("clock") or ""),
        printable(header.get("mode") or "golden"),
        printable(header.get("policy") or "float32"),
        tuple(map(str, header.get("methods") or ())),
    )


def _object(header: dict[str, Any], key: str, thing: str) -> dict[str, Any]:
    found = header.get(key, {})
    if not isinstance(found, dict):
        raise _refused(f"{ANSWER}: {key} is not an object", thing, type(found).__name__, "an object")
    return found


def _raise_error(error: Any, thing: str) -> None:
    """Raise the error that a host reports, as if it had been raised in this process."""
    if not isinstance(error, dict):
        return
    given = {
        key: None if error.get(key) is None else printable(error[key], MAX_TOLD) for key in ("got", "expected", "hint")
    }
    where = printable(error.get("thing") or thing)
    kind = printable(error.get("kind") or "engine-failed")
    traceback = str(error.get("traceback") or "")
    cause = EngineOwnError(f"in the engine's own process:\n{traceback}") if traceback else None
    raise EngineError(printable(error.get("message"), MAX_TOLD), kind=kind, thing=where, **given) from cause


def _array(tensor: StoredTensor, allowed: Mapping[str, Shape | None], thing: str) -> np.ndarray:
    name = f"{OUTPUTS}: {printable(repr(tensor.name))}"
    if tensor.name not in allowed and not tensor.name.startswith(("trace/", "statistics/")):
        raise _refused(f"{name} was not requested", thing)
    shape = allowed.get(tensor.name)
    if shape is not None and tensor.shape != shape:
        raise _refused(f"{name} has another shape", thing, list(tensor.shape), list(shape))
    if tensor.dtype in ("F16", "BF16"):
        return tensor.floats()
    if tensor.dtype not in NUMBERS:
        raise _refused(f"{name} has an unsupported dtype", thing, tensor.dtype, ", ".join([*NUMBERS, "F16", "BF16"]))
    return tensor.data.copy().view(NUMBERS[tensor.dtype]).reshape(tensor.shape)


def _plain(folder: Path, name: str, thing: str) -> Path:
    """The path of a regular file in the folder; a link could lead out of it, a pipe or device could be endless."""
    for path, is_right, what in ((folder, stat.S_ISDIR, "folder"), (folder / name, stat.S_ISREG, "file")):
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            raise _refused(f"it ended without an error and wrote no {name}", thing) from None
        if not is_right(mode):
            raise _refused(f"{name if what == 'file' else 'the output folder'} is not a plain {what}", thing)
    return folder / name


def _refused(message: str, thing: str, got: object = None, expected: object = None) -> EngineError:
    return EngineError(
        message, kind="engine-output", thing=thing, got=got, expected=expected, hint="docs/command-protocol.md"
    )
