"""Golden outputs of the trained models: ``golden.json`` beside each, made by the golden model and by nothing else.

``python -m measure.golden_outputs`` writes them again; the tests regenerate them and compare.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.decode.autoregressive import greedy, reference_logits
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.diffusion_record import Diffused
from tritgold.golden import TRAINED, trained_model
from tritgold.model import forward
from tritgold.modes import GOLDEN
from tritgold.options import THRESHOLD
from tritgold.tokenizer import Tokenizer
from tritgold.trace import Trace
from tritgold_conformance.comparing.activation_statistics import statistics
from tritgold_conformance.golden.run import GoldenRun

FILE, SCHEMA = "golden.json", "tritgold.golden_outputs/1"
OPENINGS = (
    "In the beginning God created",
    "And God said, Let there be",
    "Thou shalt not",
    "The LORD is my shepherd;",
    "Vanity of vanities,",
    "To every thing there is a season,",
    "Blessed are the poor in spirit:",
    "Our Father which art in heaven,",
    "In the beginning was the Word,",
    "For God so loved the world,",
)
QUESTIONS = (
    "copy xudek =",
    "reverse kmxz =",
    "sort vhsk =",
    "close []{( =",
    "148 vs 182 =",
    "Rapug is 7 =",
    "37 + 58 =",
    "roman 396 =",
    "after 2028-02-29 =",
    "469 l in ml =",
)
CONTINUATION = 32  # tokens
DIFFUSED = 32
THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
DIGITS = 6  # of a statistic: NumPy's float64 means may differ in the last ones from version to version


def openings(name: str) -> tuple[str, ...]:
    """The ten texts that a trained model goes on from."""
    return QUESTIONS if name.startswith("skills") else OPENINGS


def golden_outputs(folder: Path) -> dict[str, Any]:
    """What golden.json holds: hashes, greedy continuations, traces, statistics; minutes for a block-diffusion model."""
    checkpoint, tokenizer = open_checkpoint(folder), Tokenizer(folder / "tokenizer.json")
    texts = openings(folder.name)
    prompts = [tokenizer.encode(text) for text in texts]
    blocks = (1,) if checkpoint.config.block is None else (1, checkpoint.config.block)
    found = {
        "schema": SCHEMA,
        "mode": GOLDEN.id,
        "model_hash": checkpoint.model_hash(),
        "continuations": [continuation(checkpoint, tokenizer, text, block) for block in blocks for text in texts],
        "traces": [trace_facts(checkpoint, prompt, block) for prompt in prompts for block in blocks],
        "activation_statistics": layer_statistics(checkpoint, prompts[0]),
    }
    if checkpoint.config.block is not None:
        found["block_diffusion"] = threshold_table(checkpoint, prompts)
    return found


def continuation(checkpoint: Checkpoint, tokenizer: Tokenizer, text: str, block: int) -> dict[str, Any]:
    """How an opening goes on, token after token (block 1) or by block diffusion."""
    prompt, config = tokenizer.encode(text), checkpoint.config
    facts: dict[str, Any]
    if block == 1:
        logits = reference_logits(checkpoint.weights, config, len(prompt) + CONTINUATION)
        steps = list(greedy(prompt, config, logits, CONTINUATION))
        facts = {"generated": [step.token for step in steps], "reason": steps[-1].reason}
    else:
        done = diffuse(checkpoint, prompt, CONTINUATION, THRESHOLD)
        facts = {"generated": done.tokens, "reason": done.reason, "order": done.order, "forwards": done.forwards}
        facts["threshold"] = THRESHOLD
    return {"prompt": text, "block": block, "ids": prompt, **facts, "text": tokenizer.decode(facts["generated"])}


def diffuse(checkpoint: Checkpoint, prompt: list[int], tokens: int, threshold: float) -> Diffused:
    """Block diffusion by the golden model, the way it was trained for."""
    options = preset("fast-dllm-v2", threshold)
    model = reference_block_model(checkpoint.weights, checkpoint.config, options, len(prompt) + tokens)
    return block_diffusion(prompt, checkpoint.config, model, tokens, options)


def trace_facts(checkpoint: Checkpoint, tokens: list[int], block: int) -> dict[str, Any]:
    """The digest of the golden trace over the tokens (docs/traces.md says of what), by the block of the attention."""
    trace = Trace()
    forward(tokens, checkpoint.weights, checkpoint.config, trace=trace, block=block)
    return {"tokens": tokens, "mode": trace.mode, "block": block, "digest": trace.digest()}


def layer_statistics(checkpoint: Checkpoint, tokens: list[int]) -> dict[str, dict[str, float | None]]:
    """Statistics of every activation over the tokens, to DIGITS digits."""
    arrays = GoldenRun.of(checkpoint, tokens).trace.arrays
    return {
        name: {key: None if value is None else _rounded(value) for key, value in asdict(statistics(array)).items()}
        for name, array in arrays.items()
    }


def threshold_table(checkpoint: Checkpoint, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """By threshold: passes a token, and how far the output is that of deciding one token a pass."""
    single = [diffuse(checkpoint, prompt, DIFFUSED, 1.0) for prompt in prompts]
    lower = [_row(t, [diffuse(checkpoint, p, DIFFUSED, t) for p in prompts], single) for t in reversed(THRESHOLDS)]
    return [_row(1.0, single, single), *lower]


def _row(threshold: float, outputs: list[Diffused], single: list[Diffused]) -> dict[str, Any]:
    return {"threshold": threshold, "openings": [against(a, b) for a, b in zip(outputs, single, strict=True)]}


def against(output: Diffused, single: Diffused) -> dict[str, int]:
    """One output beside that of one token a pass. same: positions with the same token; prefix: those at the start."""
    pairs = list(zip(output.tokens, single.tokens, strict=False))
    same = [a == b for a, b in pairs]
    return {
        "tokens": len(output.tokens),
        "forwards": output.forwards,
        "same": sum(same),
        "prefix": same.index(False) if False in same else len(same),
        "of": max(len(output.tokens), len(single.tokens)),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def main() -> None:
    """Write golden.json of every trained model, or of those that are named."""
    for name in sys.argv[1:] or TRAINED:
        folder = trained_model(name)
        text = json.dumps(golden_outputs(folder), indent=1, ensure_ascii=False) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
