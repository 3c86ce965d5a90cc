"""Block diffusion on ``kjv-dlm`` over thresholds: what passes are saved, and what becomes of the text.

``python -m measure.diffusion_thresholds > docs/data/diffusion-thresholds.json``: half an
hour.

Ten openings, 32 tokens each, every preset, and the causal ones without their limit of ten passes a block as well,
because with it a high threshold never gets to decide most of the block. Each output is compared with what the same way
makes when it decides one token a pass, the surest first; that of adaptive also with iterative at the same threshold,
which is what it is said to equal, and all with causal greedy decoding, token by token. ``nats``: how unlikely kjv-ar
finds the text, -ln p a token.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from measure import text
from measure.report import rounded, show
from tritgold.checkpoint import Checkpoint
from tritgold.decode.autoregressive import greedy, reference_logits
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.decode.diffusion_record import Diffused
from tritgold.decode.unmasking import Thresholds

SCHEMA = "tritgold.diffusion_thresholds/1"
TOKENS = 32
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Two bold passes, then 0.9: adaptive's idea where kjv-dlm is sure of something; its own begins at 0.5.
LOWERED = ((0.1, 0.2, 0.9), (0.15, 0.3, 0.9), (0.2, 0.3, 0.9))
UNLIMITED = ", no limit"
WAYS = (*PRESETS, "iterative" + UNLIMITED, "adaptive" + UNLIMITED)


def options_of(way: str, threshold: float) -> Diffusion:
    """The options of a way, one of WAYS."""
    options = preset(way.removesuffix(UNLIMITED), threshold)
    return replace(options, max_passes=None) if way.endswith(UNLIMITED) else options


def one_a_pass(way: str) -> Diffusion:
    """The same, deciding one token a pass."""
    return replace(options_of(way, 1.0), rule=Thresholds((1.0,)), max_passes=None)


def report(
    prompts: list[list[int]], thresholds: tuple[float, ...] = THRESHOLDS, tokens: int = TOKENS
) -> dict[str, Any]:
    """The measurement. prompts: of kjv-dlm."""
    model, judge = text.opened("kjv-dlm"), text.opened("kjv-ar")
    measured = Measurement(model, judge, prompts, tokens)
    return {
        "schema": SCHEMA,
        "model": "kjv-dlm",
        "model_hash": model.model_hash(),
        "openings": len(prompts),
        "tokens": tokens,
        "one_a_pass": [measured.one_a_pass(way) for way in WAYS],
        "lowered": [measured.lowered(values) for values in LOWERED],
        "rows": [row for way in WAYS for row in measured.rows(way, () if way == "greedy" else thresholds)],
    }


class Measurement:
    """What is decoded for several rows, once.

    token_by_token: causal greedy decoding of each prompt. singles: one token a pass, by options.
    """

    def __init__(self, model: Checkpoint, judge: Checkpoint, prompts: list[list[int]], tokens: int) -> None:
        self.model, self.judge, self.prompts, self.tokens = model, judge, prompts, tokens
        self.token_by_token = [self._greedy(prompt) for prompt in prompts]
        self.singles: dict[Diffusion, list[Diffused]] = {}
        self.iterative: dict[tuple[str, float], list[Diffused]] = {}

    def one_a_pass(self, way: str) -> dict[str, Any]:
        """The row of what the others are compared with."""
        return {"way": way, **self._figures(self._single(way), way)}

    def lowered(self, values: tuple[float, ...]) -> dict[str, Any]:
        """Adaptive without a limit of passes, by other thresholds than its own."""
        how = replace(options_of("adaptive" + UNLIMITED, 0.9), rule=Thresholds(values))
        return {"thresholds": list(values), **self._figures(self._decode(how), "adaptive" + UNLIMITED)}

    def rows(self, way: str, thresholds: tuple[float, ...]) -> Iterator[dict[str, Any]]:
        """A row for each threshold; greedy has none, and one row."""
        for threshold in thresholds or (None,):
            print(way, threshold, file=sys.stderr)
            done = self._decode(options_of(way, 1.0 if threshold is None else threshold))
            row = {"way": way, "threshold": threshold, **self._figures(done, way)}
            if threshold is not None and way.startswith("iterative"):
                self.iterative[way, threshold] = done
            elif threshold is not None and way.startswith("adaptive"):
                row["same_as_iterative"] = share(done, self.iterative[way.replace("adaptive", "iterative"), threshold])
            yield row

    def _single(self, way: str) -> list[Diffused]:
        how = one_a_pass(way)
        if how not in self.singles:
            self.singles[how] = self._decode(how)
        return self.singles[how]

    def _decode(self, how: Diffusion) -> list[Diffused]:
        weights, config = self.model.weights, self.model.config
        return [
            block_diffusion(
                prompt,
                config,
                reference_block_model(weights, config, how, len(prompt) + self.tokens),
                self.tokens,
                how,
            )
            for prompt in self.prompts
        ]

    def _greedy(self, prompt: list[int]) -> Diffused:
        logits = reference_logits(self.model.weights, self.model.config, len(prompt) + self.tokens)
        steps = list(greedy(prompt, self.model.config, logits, self.tokens))
        return Diffused([step.token for step in steps], [], "length", ())

    def _figures(self, done: list[Diffused], way: str) -> dict[str, Any]:
        """Over all openings together; a token of the prefill took no forward and counts for none."""
        tokens, forwards = sum(len(d.tokens) for d in done), sum(d.forwards for d in done)
        decided = sum(number >= 0 for d in done for number in d.order)
        blocks = sum(len(d.forwards_per_block) for d in done)
        nats = [
            text.nats_a_token(self.judge, prompt, d.tokens) * len(d.tokens)
            for prompt, d in zip(self.prompts, done, strict=True)
        ]
        return {
            "tokens_per_forward": rounded(decided / forwards),
            "forwards_per_block": rounded(forwards / blocks),
            "same": share(done, self._single(way)),
            "same_as_token_by_token": share(done, self.token_by_token),
            "nats": rounded(sum(nats) / tokens),
        }


def share(done: list[Diffused], other: list[Diffused]) -> float:
    """Of the positions of either, how many have the same token in both."""
    pairs = list(zip(done, other, strict=True))
    same = sum(a == b for d, o in pairs for a, b in zip(d.tokens, o.tokens, strict=False))
    return rounded(same / sum(max(len(d.tokens), len(o.tokens)) for d, o in pairs))


if __name__ == "__main__":
    show(report(text.openings()))
