"""An engine whose every call the other processes make too: JAX runs a program over several only where all start it."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import numpy as np

from tritgold.errors import ContextError, NonFiniteError, TritgoldError
from tritgold_xla.decode.block_program import fill
from tritgold_xla.decode.block_reads import Block
from tritgold_xla.decode.diffusion_options import BlockProgram
from tritgold_xla.engine import XlaEngine
from tritgold_xla.processes.team import Team

# Methods of the engine that run programs or change what the next one reads.
CALLS = ("prefill", "read", "step", "step_all", "greedy", "trace", "operation", "reset", "truncate")
# Methods that run nothing.
_ALONE = ("versions",)
_COULD_NOT = 3  # exit code, as of the commands
GRACE = 5.0  # seconds in which a program may end by itself where a process is lost


class LedEngine:
    """The engine of process 0; what is not here is the engine's own. Not for two threads at a time, as the engine."""

    def __init__(self, team: Team, engine: XlaEngine, number: int = 0, made: list[int] | None = None) -> None:
        self._team, self._engine, self._number = team, engine, number
        self._made = [0] if made is None else made

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if name not in CALLS:
            if callable(value) and name not in _ALONE:
                raise AttributeError(f"{name}: not over several processes, where the others would not call it")
            return value
        return lambda *args, **kwargs: self._call(name, getattr(self._engine, name), args, kwargs)

    def fork(self, sequences: int, capacity: int | None = None) -> "LedEngine":
        """As the engine's own, on every process."""
        return self._numbered(self._call("fork", self._engine.fork, (sequences, capacity), {}))

    def beside(self, make: Callable[[], XlaEngine]) -> "LedEngine":
        """Another engine, opened on every process as the first was."""
        return self._numbered(self._call("open", make, (), {}))

    def _numbered(self, other: XlaEngine) -> "LedEngine":
        self._made[0] += 1
        return LedEngine(self._team, other, self._made[0], self._made)

    def run_on_cache(self, compiled: Callable[..., Any], inputs: Block, block: int | None, thing: str, *,
                     program: BlockProgram) -> Any:  # fmt: skip
        """As the engine's own, for the one program there is beside its own: a block of block diffusion."""
        assert compiled is fill
        said = [list(inputs), block, thing, asdict(program)]
        run = self._engine.run_on_cache
        return self._call("fill", lambda *_: run(compiled, inputs, block, thing, program=program), said, {})

    def _call(self, method: str, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        self._team.tell({"engine": self._number, "method": method, "args": packed(args), "kwargs": packed(kwargs)})
        return self._team.wait(lambda: call(*args, **kwargs))


def follow(team: Team, engine: XlaEngine, make: Callable[[], XlaEngine]) -> None:
    """Make the calls of process 0 until it ends. make: opens another engine. Raises as a team that breaks."""
    engines = [engine]
    while (call := team.told()) is not None:
        own, args, kwargs = engines[call["engine"]], unpacked(call["args"]), unpacked(call["kwargs"])
        try:
            if call["method"] == "fork":
                engines.append(team.wait(partial(own.fork, *args)))
            elif call["method"] == "open":
                engines.append(team.wait(make))
            elif call["method"] == "fill":
                team.wait(partial(_fill, own, *args))
            elif call["method"] in CALLS:
                team.wait(partial(getattr(own, call["method"]), *args, **kwargs))
        except (ContextError, NonFiniteError):
            continue  # process 0 has refused the same
        except TritgoldError as error:
            if team.broken is None and error.kind not in ("operation-name", "operation-inputs"):
                team.fail(str(error))
            team.check()


def _fill(engine: XlaEngine, inputs: list[Any], block: int | None, thing: str, program: dict[str, Any]) -> Any:
    static = BlockProgram(**{**program, "eos": tuple(program["eos"])})
    return engine.run_on_cache(fill, Block(*inputs), block, thing, program=static)


def leave(team: Team) -> None:
    """Runs before what JAX does at exit: where a process is lost, that would wait for it."""
    team.end()
    if team.broken is not None:
        _end_now()


def end_when_broken(team: Team, seconds: float = GRACE) -> None:
    """Wait until a process is lost; give this one so long to end with that error by itself; end it with exit code 3.

    For a program that makes no calls for a while, and so gets no error from one: a server without requests.
    """
    error = team.until_broken()
    time.sleep(seconds)
    print(f"tritgold: {error}", file=sys.stderr)
    _end_now()


def _end_now() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_COULD_NOT)


def packed(value: Any) -> Any:
    """Arguments as MessagePack has them: numbers, lists, dicts, and arrays as three fields."""
    if isinstance(value, jax.Array | np.ndarray):
        array = np.ascontiguousarray(value)
        return {"array": array.tobytes(), "dtype": array.dtype.str, "shape": list(np.shape(value))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: packed(each) for name, each in value.items()}
    return [packed(each) for each in value] if isinstance(value, list | tuple) else value


def unpacked(value: Any) -> Any:
    """What ``packed`` has made, tuples as lists."""
    if isinstance(value, dict) and "array" in value:
        return np.frombuffer(value["array"], value["dtype"]).reshape(value["shape"]).copy()
    if isinstance(value, dict):
        return {name: unpacked(each) for name, each in value.items()}
    return [unpacked(each) for each in value] if isinstance(value, list) else value
