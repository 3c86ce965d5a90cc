"""The strip of docs/learn/block-diffusion.md shows what tritgold's engine does."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_presets import preset
from tritgold.golden import embedded_model


def script() -> ModuleType:
    path = Path(__file__).parents[1] / "plots" / "block_diffusion_strip.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


strip = script()


def test_the_strip_shows_what_the_engine_decodes() -> None:
    prompt, passes, _, _ = strip.frames()
    with embedded_model("kjv-dlm") as path:
        model = open_checkpoint(path)
        options = preset("fast-dllm-v2", strip.THRESHOLD)
        tokens = strip.BLOCK - len(prompt)
        blocks = reference_block_model(model.weights, model.config, options, strip.BLOCK)
        golden = block_diffusion(prompt, model.config, blocks, tokens, options)
    shown = {i: number for number, frame in enumerate(passes) for i in frame.decided}
    assert golden.tokens == list(passes[-1].text[len(prompt) :])
    assert golden.order == [shown[i] for i in range(len(prompt), strip.BLOCK)]
