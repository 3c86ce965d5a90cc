"""A batch server's greedy decoding: right without its defects, and with each what a plain second writing gives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_diffusion import small_model
from refusals import refusal

from tritgold.decode.autoregressive import greedy, reference_logits
from tritgold.decode.server_defects import ServerDefect, served
from tritgold.kv_cache.base import KvCache
from tritgold.model import forward

OPENED = small_model(3)
PROMPT = [(n * n * 13 + 5) % 256 for n in range(11)]
CHUNK, JUMP, REPEAT, MISSING = ServerDefect


class Holes(KvCache):
    """Keys in the order in which they were read, at whatever positions: ``length`` is where the next pass stands."""

    def __init__(self) -> None:
        super().__init__("f32", OPENED.config, 64)
        self.stored: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.stored.setdefault(layer, []).append((k, v))
        pairs = self.stored[layer]
        return np.concatenate([k for k, _ in pairs]), np.concatenate([v for _, v in pairs])

    def token(self, read: int, position: int) -> int:
        """Read one token; return the likeliest next."""
        self.length = position
        return int(np.argmax(forward([read], OPENED.weights, OPENED.config, self)[-1]))


def run(*defects: ServerDefect, tokens: int = 6, chunk: int = 128, cached: int = 0) -> list[int]:
    return served(PROMPT, OPENED.weights, OPENED.config, tokens, defects, chunk, cached)


@pytest.mark.parametrize("chunk", [1, 4, 11, 128])
@pytest.mark.parametrize("cached", [0, 1, 8, 10, 11])
def test_without_defects_chunks_and_cached_prompts_change_nothing(chunk: int, cached: int) -> None:
    logits = reference_logits(OPENED.weights, OPENED.config, 40)
    known = [step.token for step in greedy(PROMPT, OPENED.config, logits, 6)]
    assert run(chunk=chunk, cached=cached) == known


def test_d8_every_chunk_gives_a_token() -> None:
    """Of 4 + 4 + 3 tokens of the prompt the first 4 and the first 8 are answered as if they were all of it."""
    early = [served(PROMPT[:n], OPENED.weights, OPENED.config, 1)[0] for n in (4, 8)]
    assert run(CHUNK, chunk=4) == early + run(tokens=4)
    assert run(CHUNK, chunk=11) == run()


@pytest.mark.parametrize("chunk", [128, 4])
def test_d8_positions_jump(chunk: int) -> None:
    """The tokens of one chunk stand right; after it the first generated stands two further, the next two more ..."""
    holes, known = Holes(), []
    for n, token in enumerate(PROMPT):
        following = holes.token(token, n)
    for n in range(6):
        known.append(following)
        following = holes.token(following, len(PROMPT) + 2 + 2 * n)
    assert run(JUMP, chunk=chunk) == known
    assert known[0] == run()[0]
    assert known != run()


def test_d8_both_leave_a_gap_between_the_chunks() -> None:
    holes, known = Holes(), []
    for n, token in enumerate(PROMPT):
        following = holes.token(token, n + n // 4)
        if n in (3, 7, 10):
            known.append(following)
    for n in range(3):
        following = holes.token(following, len(PROMPT) + 2 + 2 + 2 * n)
        known.append(following)
    assert run(CHUNK, JUMP, chunk=4) == known


def test_d9_a_prompt_found_whole_is_read_with_its_last_token_twice() -> None:
    twice = served([*PROMPT, PROMPT[-1]], OPENED.weights, OPENED.config, 6)
    assert run(REPEAT, cached=11) == twice != run()
    assert run(REPEAT, cached=10) == run(), "of a prompt that is not found whole the rest is read as it should be"


@pytest.mark.parametrize("cached", [5, 10])
def test_d10_the_last_token_of_what_was_cached_is_not_seen(cached: int) -> None:
    holes, known = Holes(), []
    for n, token in enumerate(PROMPT):
        if n != cached - 1:
            following = holes.token(token, n)
    for n in range(6):
        known.append(following)
        following = holes.token(following, len(PROMPT) + n)
    assert run(MISSING, cached=cached) == known != run()


def test_it_ends_at_an_end_of_sequence() -> None:
    known = run()
    config = replace(OPENED.config, eos=(known[2],))
    assert served(PROMPT, OPENED.weights, config, 6) == known[: known.index(known[2]) + 1]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("max-tokens", {"tokens": 0}),
        ("chunk", {"chunk": 0}),
        ("cached", {"cached": 12}),
        ("cached", {"cached": -1}),
        ("context-length", {"tokens": 54}),
    ],
)
def test_refusals(kind: str, options: dict[str, int]) -> None:
    assert refusal(lambda: run(**options)).kind == kind


def test_defects_that_there_are_not() -> None:
    unknown: Any = ["nope"], "missing-key"
    for defects in unknown:
        error = refusal(lambda defects=defects: served(PROMPT, OPENED.weights, OPENED.config, 2, defects))
        assert (error.kind, error.expected) == ("server-defect", ", ".join(ServerDefect))
