"""Text that both trained models are measured on, and what ``kjv-ar`` makes of other text."""

import json

import numpy as np

from measure.golden_outputs import FILE, OPENINGS
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import trained_model
from tritgold.model import forward
from tritgold.portable_math import exp, log, pairwise_sum
from tritgold.tokenizer import Tokenizer


def opened(name: str) -> Checkpoint:
    """A trained model."""
    return open_checkpoint(trained_model(name))


def openings() -> list[list[int]]:
    """The ten openings of the golden outputs as tokens; the two models have one vocabulary."""
    tokenizer = Tokenizer(trained_model("kjv-ar") / "tokenizer.json")
    return [tokenizer.encode(text) for text in OPENINGS]


def golden_text(tokens: int) -> list[int]:
    """The first tokens of kjv-ar's own greedy continuations, one after the other, each with its opening."""
    golden = json.loads((trained_model("kjv-ar") / FILE).read_text(encoding="utf-8"))
    text = [token for c in golden["continuations"] for token in c["ids"] + c["generated"]]
    assert len(text) >= tokens, "the golden outputs are shorter than that"
    return text[:tokens]


def log_shares(logits: np.ndarray) -> np.ndarray:
    """The logarithms of the softmax of each row: float64 [rows, vocab], sums in fixed order.

    >>> np.exp(log_shares(np.log([[1.0, 3.0]]))).round(6).tolist()
    [[0.25, 0.75]]
    """
    shifted = logits.astype(np.float64) - np.max(logits, axis=-1, keepdims=True)
    return shifted - log(pairwise_sum(exp(shifted)))[..., None]


def nats_a_token(judge: Checkpoint, prompt: list[int], tokens: list[int]) -> float:
    """How unlikely the judge finds ``tokens`` after the prompt: the mean of -ln p. Smaller is more like its own."""
    logits = forward(prompt + tokens[:-1], judge.weights, judge.config)[len(prompt) - 1 :]
    shares = log_shares(logits)[np.arange(len(tokens)), tokens]
    return float(pairwise_sum(-shares)) / len(tokens)
