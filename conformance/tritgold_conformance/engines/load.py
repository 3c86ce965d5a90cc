"""load_engine: opens the engine of ``--engine`` on a checkpoint."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold_conformance.contract.engine import EDGE_INPUT_TOKENS, JUDGED
from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT, ENGINE_SPECS
from tritgold_conformance.contract.engine_under_test import EngineUnderTest


def load_engine(
    spec: str,
    model: Path,
    checkpoint: Checkpoint,
    capacity: int,
    seconds: float = DEFAULT_TIMEOUT,
    say: Callable[[str], None] | None = None,
    in_process: bool = False,
) -> EngineUnderTest:
    """The engine that ``--engine`` names (ENGINE_SPECS), opened on a checkpoint.

    checkpoint: the opened ``model``, for tritgold's own engines; capacity: number of positions that they must hold.
    seconds: limit for one run of a program, one answer of a server or one call of a class.
    say: receives the progress of loading as text, if the engine reports it. in_process: make the class in this process,
    for a debugger; the judge is then not protected from it.
    Raises EngineError if an engine cannot be found or made, MissingDependencyError if a package is missing.
    """
    config = checkpoint.config
    room = max(capacity, EDGE_INPUT_TOKENS)
    if spec == "reference":
        opener = importlib.import_module("tritgold_conformance.golden.reference_engine").open_engine
        return EngineUnderTest(opener(checkpoint, room), spec, config, again=lambda: opener(checkpoint, room))
    if spec == "xla":
        opener = importlib.import_module("tritgold_conformance.engines.xla").open_judged
        again = functools.partial(opener, checkpoint, room)
        return EngineUnderTest(opener(checkpoint, room, say=say), spec, config, again=again)
    if spec in ("transformers", "llama.cpp"):
        opener = importlib.import_module("tritgold_conformance.engines.peers").PEERS[spec]
        return EngineUnderTest(opener(checkpoint, model, seconds), spec, config=config, asked_once=True)
    if spec.startswith("cmd:"):
        opener = importlib.import_module("tritgold_conformance.engines.command").open_command
        return EngineUnderTest(
            opener(spec.removeprefix("cmd:"), checkpoint, model, seconds), spec, config=config, asked_once=True
        )
    if spec.startswith(("http:", "https:")):
        opener = importlib.import_module("tritgold_conformance.engines.http_server").open_server
        return EngineUnderTest(opener(spec, config, seconds), spec, config=config)
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise EngineError("unknown engine", kind="engine-unknown", got=repr(spec), expected=ENGINE_SPECS)
    here = os.getcwd()
    if in_process:  # a console script does not have the current folder on its path, unlike python -m
        sys.path[:] = [here, *(folder for folder in sys.path if folder not in ("", here))]
    else:  # last, so that the judge does not import a file of an engine instead of its own module
        sys.path[:] = [*(folder for folder in sys.path if folder not in ("", here)), here]
    if in_process:
        make_class = importlib.import_module("tritgold_conformance.engines.host").make_class
        made = make_class(spec, str(model))
        engine = EngineUnderTest(made, spec, config, in_process=True, again=lambda: make_class(spec, str(model)))
    else:
        opener = importlib.import_module("tritgold_conformance.engines.hosted").HostedEngine
        engine = EngineUnderTest(opener(spec, checkpoint, model, seconds), spec, config, asked_once=True)
    if not any(engine.has(method) for method in JUDGED):
        expected = f"one of {', '.join(JUDGED)}"
        raise EngineError("has no method to judge", kind="engine-protocol", thing=f"engine {spec}", expected=expected)
    return engine
