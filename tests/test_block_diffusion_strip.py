"""The strip of docs/learn/block-diffusion.md shows what tritgold's engine does."""

from scripts import script

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_presets import preset
from tritgold.golden import embedded_model

strip = script("plots/block_diffusion_strip.py")


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
