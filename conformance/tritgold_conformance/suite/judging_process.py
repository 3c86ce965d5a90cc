"""A process in which an engine is judged on one input after the other, and from which only reports come back.

For the suite: an engine that ends, crashes or stops the process it runs in must not take pytest with it, and is loaded
once for all inputs. The child reads lengths from its standard input, a line each, and answers each with a line:
``report`` when the report's file is there, ``skip`` and why; or, before it ends, an error as ``--json`` prints one.
A class of somebody else's is guarded there as in ``tritgold check`` (``guard``).
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tritgold.errors import EngineError
from tritgold_conformance.commands import common, model_input
from tritgold_conformance.commands.leaving import leaving
from tritgold_conformance.rendering.escaping import clean
from tritgold_conformance.results.report import Report, read_report, to_json

_ENDING = 10.0  # seconds for an engine to be let go


@dataclass(frozen=True)
class Asked:
    """What is judged, by which options of ``tritgold check``. capacity: the longest input. folder: where reports go."""

    engine: str
    model: str | None
    mode: str | None
    linear_class: str | None
    timeout: int | None
    capacity: int
    folder: str

    def options(self) -> tuple[str, ...]:
        """The options, for a command to paste."""
        given = {"--linear-class": self.linear_class, "--timeout": self.timeout, "--mode": self.mode}
        return tuple(word for name, value in given.items() if value is not None for word in (name, str(value)))


class JudgingProcess:
    """The process, seen from outside. It is started for the first report."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self._error = asked, ""
        self._process: subprocess.Popen[str] | None = None

    def report(self, count: int) -> Report | str:
        """The judgement over ``count`` tokens, or why the model has no such input.

        Raises EngineError where there is none; from then on always the same.
        """
        answer = "" if self._error else self._answer(count)
        if answer.startswith("skip "):
            return answer.removeprefix("skip ").strip()
        if answer != "report\n":
            self._error = self._error or _said(answer + self._rest())
            raise EngineError(self._error, kind="not-judged")
        return read_report(Path(self._asked.folder) / f"{count}.json")

    def close(self) -> None:
        """Let it end; then make it end."""
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # it may have ended with a question unread
                _there(pipe).close()
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()

    def _answer(self, count: int) -> str:
        """A line, or what there is of it where the process ended."""
        if self._process is None:
            words = [sys.executable, "-m", "tritgold_conformance.suite.judging_process"]
            given = json.dumps({"path": sys.path, "asked": asdict(self._asked)})
            self._process = subprocess.Popen(
                [*words, given], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
            )
        with suppress(OSError):
            stdin = _there(self._process.stdin)
            stdin.write(f"{count}\n")
            stdin.flush()
        return _there(self._process.stdout).readline()

    def _rest(self) -> str:
        return "" if self._process is None else _there(self._process.stdout).read()


def _there(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "both are pipes"
    return pipe


def _said(answer: str) -> str:
    """The message of an error as ``--json`` prints one."""
    try:
        error = json.loads(answer)
        parts = (error[key] for key in ("file", "thing", "message") if error.get(key))
        return clean(": ".join(map(str, parts)))
    except (ValueError, TypeError, AttributeError):
        return "the process in which it was judged ended without a word"


@common.guarded
def _judge(spec: str, as_json: bool, asked: Asked) -> None:
    """In the process: a report for each line."""
    from tritgold.checkpoint import open_checkpoint
    from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT
    from tritgold_conformance.engines.load import load_engine
    from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
    from tritgold_conformance.judging.check import check

    with _own_input() as lengths, model_input.model_path(asked.model) as path:
        checkpoint = open_checkpoint(path, asked.linear_class)
        engine = load_engine(spec, path, checkpoint, asked.capacity, asked.timeout or DEFAULT_TIMEOUT)
        for line in lengths:
            count = int(line)
            if count > checkpoint.config.context:
                print(f"skip the model has {checkpoint.config.context} positions", flush=True)
                continue
            tokens = judging_tokens(count, checkpoint.config.vocab, seed=1)
            golden = GoldenRun.of(checkpoint, tokens, named_arithmetic(asked.mode or engine.mode))
            name, options = model_input.model_name(asked.model), asked.options()
            report, _ = check(golden, engine, name, timed=False, options=options)
            (Path(asked.folder) / f"{count}.json").write_bytes(to_json(report))
            print("report", flush=True)


def _own_input() -> IO[str]:
    """Standard input, out of reach of whatever the engine reads."""
    own = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)
    return own


def main(given: str) -> None:
    """Judge what the suite asks for."""
    request: dict[str, Any] = json.loads(given)
    sys.path[:] = request["path"]  # pytest's, which finds modules beside its tests
    asked = Asked(**request["asked"])
    with leaving():
        _judge(spec=asked.engine, as_json=True, asked=asked)


if __name__ == "__main__":
    main(sys.argv[1])
