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

    checkpoint: the same, opened already, for the engines of ours; capacity: positions that they need room for.
    seconds: how long one run of a program, one answer of a server or one call of a class may take.
    say: hears how far loading is, where the engine tells. in_process: a class is made in this process, for a debugger,
    where nothing protects the judge from it. policy: the precision asked for, in which peers are started. devices: over
    which the engine xla cuts the model.
    Raises EngineError when an engine cannot be found or made, MissingDependencyError when what it needs is not there.
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
        return EngineUnderTest(engine, spec, config=config, asked_once=True)
    if spec.startswith("cmd:"):
        opener = importlib.import_module("tritgold_conformance.engines.command").open_command
        return EngineUnderTest(
            opener(spec.removeprefix("cmd:"), checkpoint, model, seconds), spec, config=config, asked_once=True
        )
    if spec.startswith(("http:", "https:")):
        opener = importlib.import_module("tritgold_conformance.engines.chat_server").open_server
        return EngineUnderTest(opener(spec, checkpoint, seconds), spec, config=config)
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
