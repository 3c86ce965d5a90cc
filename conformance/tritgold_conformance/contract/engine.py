"""Engine: the methods that the judge can call. It is a Protocol; an engine imports nothing of tritgold.

Every method is optional. A missing method makes a level *not assessed*, never *passed*.
"""

from typing import Any, Protocol

import numpy as np

# Tokens of the longest edge-case input (``questions.edge_inputs``): tritgold's own engines need room for it, even if
# the judged text is shorter.
EDGE_INPUT_TOKENS = 4
# Loops and text methods; their arguments are valid JSON values.
BEHAVIOURS = ("generate", "serve", "diffuse", "encode", "chat", "stream")
# An engine has at least one of these.
JUDGED = ("prefill", "trace", "operation", "complete", "statistics", "unpack", "step", *BEHAVIOURS)
METHODS = (*JUDGED, "reset", "seconds", "versions")

# Of the command line:
ENGINE_SPECS = "xla, reference, transformers, llama.cpp, module:Class, cmd:COMMAND or http://HOST:PORT"
MODES = ("golden", "llama-cpp-q8_k")  # names of tritgold.layers.arithmetic.ARITHMETICS
DEFAULT_TIMEOUT = 600.0  # seconds for one run of a program, one answer of a server or one call of a class


class Engine(Protocol):
    """An engine: made with one argument, the path of the checkpoint; every method is optional.

    A method that returns None or raises NotImplementedError counts as missing. Any other exception is an error of the
    engine. The form of the results: docs/judging.md. Attributes that it may have: ``name``; ``mode``, its arithmetic
    if not ``golden``; ``policy``, the precision that it declares if not float32; ``timed``, False if the judge's clock
    cannot measure it: then ``seconds`` is called, and ``clock`` says whose clock that is.
    """

    name: str

    def reset(self) -> None:
        """Forget all tokens."""

    def prefill(self, tokens: list[int]) -> Any:
        """Read tokens after those read since ``reset``: the logits at each token, float [tokens, vocab]."""

    def step(self, token: int) -> Any:
        """Read one more token: its logits, float [vocab]."""

    def trace(self, tokens: list[int]) -> Any:
        """Activations of one prefill from position 0, {name: array}; any of the names in docs/traces.md."""

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> Any:
        """One operation of the graph on given inputs, positions from 0: {role: array}."""

    def statistics(self, tokens: list[int]) -> Any:
        """{name: {moment: number}} of the activations of ``trace``: mean, std, rms, min, max, zeros."""

    def complete(self, tokens: list[int]) -> Any:
        """(token, {id: log-probability}): the greedy next token after these, and the most likely tokens."""

    def unpack(self, format: str, data: bytes, shape: tuple[int, int]) -> Any:
        """float [out, in], trit x scale, from the bytes of a packed matrix; raises if the bytes are damaged."""

    def generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens, generated one after the other."""

    def serve(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens as from a batch server, with the prompt read in chunks and found in a cache."""

    def diffuse(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        """Tokens by block diffusion."""

    def encode(self, text: str) -> Any:
        """Ids of a text."""

    def chat(self, message: str) -> Any:
        """Ids of a user's message in the chat template."""

    def stream(self, ids: list[int]) -> Any:
        """Pieces of text, one for each id."""

    def seconds(self, tokens: list[int]) -> Any:
        """{"prefill": seconds to read these at once, "step": to read one more token}, by the engine's own clock."""

    def versions(self) -> Any:
        """{name: version}, for the report."""
