"""Block diffusion that decides or keeps the wrong tokens."""

import numpy as np
from registry import faulty
from text_engine import Diffusing, Options

KIND = "diffusion"


@faulty(KIND, "diffuse returns [7] * n", model="kjv-dlm")
class DiffusesSevens(Diffusing):
    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> list[int] | None:
        return [7] * max_tokens


@faulty(KIND, "diffuse decodes token by token, causally", model="kjv-dlm")
class DiffusesCausally(Diffusing):
    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> list[int] | None:
        return self.generate(prompt, max_tokens, options)


@faulty(KIND, "a pass decides the whole sub-block, whatever the threshold", model="kjv-dlm")
class ThresholdIgnored(Diffusing):
    def threshold(self, options: Options) -> float:
        return 0.0


@faulty(KIND, "tokens that reach the threshold from below 0.2 are decided, too", model="kjv-dlm")
class ThresholdLow(Diffusing):
    def threshold(self, options: Options) -> float:
        return Diffusing.threshold(self, options) * 0.2


@faulty(KIND, "what stands after an end of sequence is put out", model="kjv-dlm")
class PastTheStop(Diffusing):
    def stops(self, options: Options) -> set[int]:
        return set()


@faulty(KIND, "max_tokens is looked at between blocks only", model="kjv-dlm")
class WholeBlocks(Diffusing):
    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> list[int] | None:
        block = self.config["bd_size"]
        return Diffusing.diffuse(self, prompt, -(-(len(prompt) + max_tokens) // block) * block - len(prompt), options)


@faulty(KIND, "the sub-block that is asked for is ignored", model="kjv-dlm")
class SubBlockIgnored(Diffusing):
    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> list[int] | None:
        return Diffusing.diffuse(self, prompt, max_tokens, {**options, "sub_block": self.config["bd_size"]})


@faulty(KIND, "attention in blocks of 16 where the model has 32", model="kjv-dlm")
class BlocksOfSixteen(Diffusing):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        at, span = columns - rows + np.arange(rows), min(self.span, 16)
        return np.arange(columns) // span <= (at // span)[:, None]


@faulty(KIND, "the least sure token of a pass is decided first", model="kjv-dlm")
class LeastSureFirst(Diffusing):
    def decided(self, logits: np.ndarray, threshold: float, options: Options) -> tuple[np.ndarray, np.ndarray]:
        tokens, chosen = Diffusing.decided(self, logits, threshold, options)
        scores = np.stack([self.biased(row, options) for row in logits])
        chosen[:] = False
        chosen[np.argmin(scores.max(-1))] = True
        return tokens, chosen


@faulty(KIND, "attention inside blocks where prefill and steps should be causal", model="kjv-dlm")
class AlwaysInBlocks(Diffusing):
    span = 32
