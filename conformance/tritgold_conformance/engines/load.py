"""load_engine: opens the engine of ``--engine`` on a checkpoint."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold_conformance.contract.engine import DEFAULT_TIMEOUT, EDGE_INPUT_TOKENS, ENGINE_SPECS, JUDGED
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.policies import FLOAT32, Policy


def load_engine(
    spec: str,
    model: Path,
    checkpoint: Checkpoint,
    capacity: int,
    seconds: float = DEFAULT_TIMEOUT,
    say: Callable[[str], None] | None = None,
    in_process: bool = False,
    policy: Policy | None = None,
    devices: int = 1,
) -> EngineUnderTest:
    """The engine that ``--engine`` names (ENGINE_SPECS), opened on a checkpoint.

    checkpoint: the opened ``model``. capacity: positions that tritgold's own engines need. seconds: limit for one run
    of a program, one answer of a server or one call of a class. say: receives the progress of loading, if the engine
    reports it. in_process: make a class in this process, for a debugger; nothing then protects the judge from it.
    policy: the precision in which a peer is started. devices: of JAX, over which the engine xla cuts the model.

    Raises EngineError if the engine cannot be found or made, MissingDependencyError if a package is missing.
    """
    config = checkpoint.config
    room = max(capacity, EDGE_INPUT_TOKENS)
    if spec == "reference":
        opener = importlib.import_module("tritgold_conformance.golden.reference_engine").open_engine
        return EngineUnderTest(opener(checkpoint, room), spec, config, again=lambda: opener(checkpoint, room))
    if spec == "xla":
        opener = importlib.import_module("tritgold_conformance.engines.xla").open_judged
        again = functools.partial(opener, checkpoint, room, devices=devices)
        return EngineUnderTest(again(say=say), spec, config, again=again)
    if spec in ("transformers", "llama.cpp"):
        opener = importlib.import_module("tritgold_conformance.engines.peers").PEERS[spec]
        engine = opener(checkpoint, model, seconds, policy or FLOAT32)
        return EngineUnderTest(engine, spec, config, asked_once=True)
    if spec.startswith("cmd:"):
        opener = importlib.import_module("tritgold_conformance.engines.command").open_command
        engine = opener(spec.removeprefix("cmd:"), checkpoint, model, seconds)
        return EngineUnderTest(engine, spec, config, asked_once=True)
    if spec.startswith(("http:", "https:")):
        opener = importlib.import_module("tritgold_conformance.engines.chat_server").open_server
        return EngineUnderTest(opener(spec, checkpoint, seconds), spec, config)
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise EngineError("unknown engine", kind="engine-unknown", got=repr(spec), expected=ENGINE_SPECS)
    here, others = os.getcwd(), [folder for folder in sys.path if folder not in ("", os.getcwd())]
    if in_process:
        sys.path[:] = [here, *others]  # a console script does not have the current folder on its path, unlike python -m
        make_class = importlib.import_module("tritgold_conformance.engines.host").make_class
        again = functools.partial(make_class, spec, str(model))
        engine = EngineUnderTest(again(), spec, config, in_process=True, again=again)
    else:
        sys.path[:] = [*others, here]  # last, so that the judge never imports a file of the engine as its own module
        opener = importlib.import_module("tritgold_conformance.engines.command").HostedEngine
        engine = EngineUnderTest(opener(spec, checkpoint, model, seconds), spec, config, asked_once=True)
    if not any(engine.has(method) for method in JUDGED):
        expected = f"one of {', '.join(JUDGED)}"
        raise EngineError("has no method to judge", kind="engine-protocol", thing=f"engine {spec}", expected=expected)
    return engine
