"""The answers of a program, by question. The key of a question does not depend on the run in which it was asked."""

import hashlib
import json
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from tritgold.errors import EngineError
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.contract.session import Session
from tritgold_conformance.engines.exchange import Answer
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.questions.evidence import Completion, Raised
from tritgold_conformance.questions.request_batch import Behaviour, OperationInput, RequestBatch

Key = tuple[str, Hashable]


def of_operation(asked: OperationInput) -> Key:
    """The key of an operation: a hash of its name and of its inputs' names, dtypes, shapes and bytes."""
    digest = hashlib.sha256(asked.operation.name.encode())
    for role, array in sorted(asked.inputs.items()):
        digest.update(f"{role} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return "operation", digest.hexdigest()


def of_session(asked: Session) -> Key:
    """The key of a session, which includes its id: equal sessions are asked separately, as answers may differ."""
    return "session", (asked.id, tuple(asked.tokens), tuple(asked.chunks), asked.calls)


def of_file(asked: FileCase) -> Key:
    """The key of packed bytes: format, bytes and shape."""
    return "unpack", (asked.format, asked.data, tuple(asked.shape))


def of_tokens(method: str, tokens: list[int]) -> Key:
    """The key of a question about tokens. method: ``trace``, ``statistics``, ``complete`` or ``seconds``."""
    return method, tuple(tokens)


def of_behaviour(asked: Behaviour) -> Key:
    """The key of a question about a loop or text: method and arguments."""
    return asked.method, json.dumps(asked.arguments)


def by_question(asked: RequestBatch, answer: Answer, thing: str) -> Iterator[tuple[Key, tuple[str, ...], Any]]:
    """(question, methods that answer it, answer) of a run; the answer is None or empty if the program gave none.

    Raises EngineError if the next tokens have a wrong shape or dtype.
    """
    arrays = answer.arrays
    raised = {name: Raised(message) for name, message in answer.raised.items()}
    for number, one in enumerate(asked.operations):
        name = f"operation/{number}"
        yield of_operation(one), ("operation",), raised.get(name) or below(arrays, f"{name}/") or None
    if asked.trace:
        yield of_tokens("trace", asked.trace), ("trace",), below(arrays, "trace/")
    for session in asked.sessions:
        name = f"logits/{session.id}"
        yield of_session(session), session.calls, raised.get(name) or arrays.get(name)
    if asked.statistics:
        yield of_tokens("statistics", asked.statistics), ("statistics",), _moments(below(arrays, "statistics/"))
    for number, case in enumerate(asked.files):
        refused = Raised("refused") if str(number) in answer.refused else raised.get(f"files/{number}")
        yield of_file(case), ("unpack",), refused or arrays.get(f"files/{number}")
    if asked.text:
        for end, completion in enumerate(_next_tokens(asked.text, below(arrays, "text/"), thing), start=1):
            yield of_tokens("complete", asked.text[:end]), ("complete",), completion
    for number, behaviour in enumerate(asked.behaviours):
        name = f"behaviours/{number}"
        found = [raised.get(name), arrays.get(name), answer.behaviours.get(str(number))]
        yield of_behaviour(behaviour), (behaviour.method,), next((one for one in found if one is not None), None)
    if answer.seconds:
        for tokens in [session.tokens for session in asked.sessions] + [asked.speed]:
            yield of_tokens("seconds", tokens), (), answer.seconds


def below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _moments(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Moments by array name, from ``<name>`` [6] (all MOMENTS in order) or ``<name>/<moment>`` [] (one moment)."""
    found: dict[str, dict[str, float]] = {}
    for name, array in arrays.items():
        if array.shape == (len(MOMENTS),):
            found[name] = dict(zip(MOMENTS, array.tolist(), strict=True))
        elif array.size == 1:
            whole, _, moment = name.rpartition("/")
            found.setdefault(whole, {})[moment] = array.item()
        else:
            found[name] = {}
    return found


def _next_tokens(tokens: list[int], given: dict[str, Any], thing: str) -> list[Completion | None]:
    """Next tokens from text/token [tokens] and text/ids, text/logprobs [tokens, n]. Ids below 0 mean no entry."""
    if "token" not in given:
        return [None] * len(tokens)
    chosen, count = given["token"], len(tokens)
    ids, values = (given.get(name, np.zeros((count, 0))) for name in ("ids", "logprobs"))
    shaped = ids.ndim == 2 and ids.shape == values.shape and len(ids) == count
    if not shaped or chosen.dtype.kind not in "iu" or (ids.size and ids.dtype.kind not in "iu"):
        what = "text/ids and text/logprobs are [tokens, n], of one shape; ids and text/token are integers"
        raise EngineError(what, kind="engine-output", thing=thing, hint="docs/command-protocol.md")
    found: list[Completion | None] = []
    for token, row, logprobs in zip(chosen, ids, values, strict=True):
        pairs = [(int(i), float(value)) for i, value in zip(row, logprobs, strict=True) if i >= 0]
        if len(dict(pairs)) < len(pairs):
            raise EngineError("text/ids shows a token twice", kind="engine-output", thing=thing)
        found.append((int(token), dict(pairs)) if token >= 0 else None)
    return found
