"""Engine: what the judge asks of whatever it judges. A Protocol; an engine imports nothing of ours.

An engine gives what it can. A method it lacks makes a level *not assessed*, never *passed*.
"""

from typing import Any, Protocol

import numpy as np

# Tokens of the longest edge-case input (``questions.edge_inputs``): engines of ours need room for it, however short
# the judged text.
EDGE_INPUT_TOKENS = 4
# Loops and text, asked with arguments that JSON can hold.
BEHAVIOURS = ("generate", "serve", "diffuse", "encode", "chat", "stream")
# An engine has at least one of these.
JUDGED = ("prefill", "trace", "operation", "complete", "statistics", "unpack", "step", *BEHAVIOURS)
METHODS = (*JUDGED, "reset", "seconds", "versions")


class Engine(Protocol):
    """What an engine may offer: made with one argument, the path of the checkpoint; every method is optional.

    None, or NotImplementedError, says that it does not have it. Any other exception is its own fault. What may be
    returned, in which form: docs/judging.md. Beside the methods it may have ``name``, ``mode`` (its arithmetic, where
    that is not ``golden``), ``policy`` (the precision that it declares, where that is not float32) and ``timed``
    (False where the judge's clock would not measure it: then ``seconds`` is asked, and ``clock`` says whose they are).
    """

    name: str

    def reset(self) -> None:
        """Forget every token."""

    def prefill(self, tokens: list[int]) -> Any:
        """Read tokens after those read since ``reset``: logits at each, float [tokens, vocab]."""

    def step(self, token: int) -> Any:
        """Read one more token: its logits, float [vocab]."""

    def trace(self, tokens: list[int]) -> Any:
        """Activations of one prefill from position 0, {name: array}; any part of the names of docs/traces.md."""

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> Any:
        """One operation of the graph on given inputs, positions from 0: {role: array}."""

    def statistics(self, tokens: list[int]) -> Any:
        """{name: {moment: number}} of the activations that ``trace`` would show: mean, std, rms, min, max, zeros."""

    def complete(self, tokens: list[int]) -> Any:
        """(token, {id: log-probability}): what it writes greedily after these, and the likeliest tokens."""

    def unpack(self, format: str, data: bytes, shape: tuple[int, int]) -> Any:
        """float [out, in], trit x scale, of the bytes of a packed matrix; it raises where the bytes are damaged."""

    def generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens, one after the other."""

    def serve(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens as a batch server gives them, the prompt read in chunks and found in a cache."""

    def diffuse(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens by block diffusion."""

    def encode(self, text: str) -> Any:
        """Ids of a text."""

    def chat(self, message: str) -> Any:
        """Ids of a user's message in its template."""

    def stream(self, ids: list[int]) -> Any:
        """Pieces of text, one an id."""

    def seconds(self, tokens: list[int]) -> Any:
        """{"prefill": seconds of reading these at once, "step": of one more token}, by a clock of its own."""

    def versions(self) -> Any:
        """{name: version}, for the report."""
