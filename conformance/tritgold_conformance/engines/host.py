"""The host: a separate process for a Python class, which answers by the command protocol.

    python -m tritgold_conformance.engines.host module:Class INPUTS OUTPUTS

It makes an instance for the checkpoint that config.json names, calls its methods for every entry of requests.json, and
writes the results. A crash or a changed global setting stays in this process and does not affect the judge. Imports
are few, because the host is started for every judgement.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, TritgoldError
from tritgold_conformance.contract.clock import measure
from tritgold_conformance.contract.engine import METHODS
from tritgold_conformance.contract.engine_under_test import EngineUnderTest, contained
from tritgold_conformance.contract.session import Session, groups

PROTOCOL = "tritgold.command/1"
PROGRESS = "progress"  # file with one line for each step that begins
MAX_TRACEBACK = 20_000  # characters, from the end
Arrays = dict[str, np.ndarray]


def make_class(spec: str, model: str) -> object:
    """An instance of ``module:Class`` for a checkpoint. Raises EngineError, kind ``engine-load``, for any failure."""
    module, _, name = spec.partition(":")
    thing = f"engine {spec}"
    with contained("making it", thing, "engine-load"):
        return _class(module, name, thing)(model)


def _class(module: str, name: str, thing: str) -> Callable[[str], object]:
    """The class. A missing module gives a one-line error; a failure while it is imported keeps its traceback."""
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that it imports is missing
        what = f"making it failed: ModuleNotFoundError: {error}"
    hint = "it is looked for in the current folder and on the Python path"
    raise EngineError(what, kind="engine-load", thing=thing, hint=hint)


class Host:
    """Answers of one class to one requests.json.

    arrays: the contents of outputs.safetensors so far. facts: fields of answer.json; ``raised`` has the error messages
    of operations, packed bytes and behaviours, by the name that their arrays would have.
    """

    def __init__(self, engine: EngineUnderTest, inputs: Arrays, begin: Callable[[str], None]) -> None:
        self._engine, self._inputs, self._begin = engine, inputs, begin
        self.arrays: Arrays = {}
        self._raised: dict[str, str] = {}
        self._behaved: dict[str, Any] = {}
        self.facts: dict[str, Any] = {"raised": self._raised, "behaviours": self._behaved}

    def answer(self, requests: dict[str, Any]) -> None:
        """Answer all parts, in the order in which the judge compares them. EngineError: the engine cannot be judged."""
        for part in ("files", "operations", "statistics", "trace", "logits", "text", "behaviours", "speed"):
            if requests.get(part):
                getattr(self, f"_{part}")(requests[part])

    def _files(self, asked: list[dict[str, Any]]) -> None:
        for one in asked:
            given = (one["format"], self._inputs[one["data"]].tobytes(), tuple(one["shape"]))
            name = f"files/{one['id']}"
            matrix = self._or_raised(name, f"unpack {one['format']}", self._engine.unpack, *given)
            self.arrays |= {} if matrix is None else {name: matrix}

    def _operations(self, asked: list[dict[str, Any]]) -> None:
        for one in asked:
            inputs = {role: self._inputs[name] for role, name in one["inputs"].items()}
            name, what = f"operation/{one['id']}", f"operation {one['operation']}"
            given = self._or_raised(name, what, self._engine.operation, one["operation"], inputs) or {}
            self.arrays |= {f"{name}/{role}": array for role, array in given.items()}

    def _statistics(self, asked: dict[str, Any]) -> None:
        """Each moment is a separate array, because an engine may give only some of them."""
        self._begin("statistics")
        for name, of in self._engine.statistics(asked["tokens"]).items():
            self.arrays |= {f"statistics/{name}/{moment}": np.asarray(value) for moment, value in of.items()}

    def _trace(self, asked: dict[str, Any]) -> None:
        self._begin("trace")
        self.arrays |= {f"trace/{name}": array for name, array in self._engine.trace(asked["tokens"]).items()}

    def _logits(self, asked: list[dict[str, Any]]) -> None:
        """Logits of sessions, each after a reset; a session with an unanswered chunk is left out."""
        sessions = [Session(**{**one, "calls": tuple(one.get("calls", ()))}) for one in asked]
        for group in groups(sessions):
            names = [f"logits/{session.id}" for session in group]
            if group[0].contained:
                found = self._or_raised(names, "", self._engine.read, group, self._begin)
            else:
                found = self._engine.read(group, self._begin)
            self.arrays |= {name: rows for name, rows in zip(names, found or [], strict=False) if rows is not None}

    def _text(self, asked: dict[str, Any]) -> None:
        """The next token after each prefix; rows of the most likely ids are padded with -1."""
        if not self._engine.has("complete"):
            return
        given: list[tuple[int, dict[int, float]]] = []
        for end in range(1, len(asked["tokens"]) + 1):
            self._begin("complete")
            given.append(self._engine.complete(asked["tokens"][:end]) or (-1, {}))
        width = max(len(logprobs) for _, logprobs in given)
        ids, values = np.full((len(given), width), -1, np.int64), np.zeros((len(given), width))
        for row, (_, logprobs) in enumerate(given):
            ids[row, : len(logprobs)], values[row, : len(logprobs)] = list(logprobs), list(logprobs.values())
        self.arrays |= {"text/token": np.array([token for token, _ in given]), "text/ids": ids, "text/logprobs": values}

    def _behaviours(self, asked: list[dict[str, Any]]) -> None:
        for one in asked:
            name, method = f"behaviours/{one['id']}", one["method"]
            given = self._or_raised(name, method, self._engine.ask, method, *one["arguments"])
            if isinstance(given, np.ndarray):
                self.arrays[name] = given
            elif given is not None:
                self._behaved[one["id"]] = given

    def _speed(self, asked: dict[str, Any]) -> None:
        """Tokens/s, by the clock of this process unless the class reports its own seconds."""
        self._begin("being timed")
        speed, rows = measure(self._engine, asked["tokens"])
        self.arrays |= {f"timed/{call}": given for call, given in rows.items()}
        if speed is not None:
            seconds = {
                "prefill": speed.prefill and speed.tokens / speed.prefill,
                "step": speed.decode and 1 / speed.decode,
            }
            self.facts |= {"seconds": seconds, "clock": "program" if speed.clock == "judge" else "engine"}

    def _or_raised(self, names: str | list[str], what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        if what:
            self._begin(what)
        try:
            return call(*arguments)
        except TritgoldError as error:  # raised by a part of tritgold, which a class may use
            if isinstance(error, EngineError) and error.kind != "engine-failed":
                raise
            self._raised |= dict.fromkeys([names] if isinstance(names, str) else names, error.message)
            return None


def main(spec: str, inputs: Path, outputs: Path) -> None:
    """Answer the requests of one run. An error because of which nothing can be judged is ``error`` in answer.json."""
    arrays: Arrays = {}
    facts: dict[str, Any]
    try:
        arrays, facts = _answered(spec, inputs, outputs)
    except (TritgoldError, KeyboardInterrupt) as caught:  # Ctrl-C does not reach this process: the class raised it
        error = caught if isinstance(caught, TritgoldError) else _interrupted(spec, outputs, caught)
        cause = error.__cause__
        shown = "" if cause is None else "".join(traceback.format_exception(cause))[-MAX_TRACEBACK:]
        facts = {"error": {**error.as_dict(), "traceback": shown}}
    save_file({_text(name): _storable(array) for name, array in arrays.items()}, outputs / "outputs.safetensors")
    (outputs / "answer.json").write_text(json.dumps({"protocol": PROTOCOL, **facts}))


def _interrupted(spec: str, outputs: Path, caught: KeyboardInterrupt) -> EngineError:
    doing = (outputs / PROGRESS).read_text().splitlines()[-1]
    error = EngineError(f"{doing} failed: KeyboardInterrupt", kind="engine-failed", thing=f"engine {spec}")
    error.__cause__ = caught
    return error


def _answered(spec: str, inputs: Path, outputs: Path) -> tuple[Arrays, dict[str, Any]]:
    config, requests = (json.loads((inputs / name).read_text()) for name in ("config.json", "requests.json"))
    sizes = {field.name: config[field.name] for field in fields(ModelConfig) if field.name in config}
    given = load_file(inputs / "inputs.safetensors")
    progress = os.open(outputs / PROGRESS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def begin(what: str) -> None:
        os.write(progress, f"{what}\n".encode(errors="replace"))

    begin("making it")

    def make() -> object:
        return make_class(spec, config["checkpoint"])

    engine = EngineUnderTest(make(), spec, ModelConfig(**sizes), again=make)
    begin("describing itself")
    methods = [name for name in METHODS if engine.has(name)]
    about = {"name": engine.name, "mode": engine.mode, "policy": engine.policy, "methods": methods}
    host = Host(engine, given, begin)
    host.answer(requests)
    begin("versions")
    return host.arrays, {**host.facts, **about, "versions": engine.versions()}


def _text(name: str) -> str:
    """The name with lone surrogates, which UTF-8 cannot encode, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _storable(array: np.ndarray) -> np.ndarray:
    """The array in a dtype of the protocol with the same numbers; unsupported dtypes are widened."""
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u":  # no code or accumulator is near the limits of int64
        array = np.minimum(array, np.iinfo(np.int64).max).astype(np.int64)
    return np.array(array, array.dtype.newbyteorder("="), order="C")


if __name__ == "__main__":
    # -m, not a path: the folder of this file is not on the Python path, so its modules have no short names.
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # without waiting for threads and atexit functions of the class
