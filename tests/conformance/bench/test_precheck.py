"""What is judged before anything is timed, beyond the levels of ``tritgold check``."""

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritgold.checkpoint import Checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.golden import embedded_model
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.bench.precheck import Judge, quietly_opened
from tritgold_conformance.bench.precheck_rows import BLOCK_MODEL, BLOCK_ROOM, BLOCK_TEXT, golden_options, judged_tokens
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.comparing.tie_sensitivity import Coin
from tritgold_conformance.golden.reference_engine import ReferenceEngine

TINY = ModelShape("tiny", 1, 256, 256, 4, 2, 64, 64, context=64)


class Shortcuts(ReferenceEngine):
    """The golden model with the methods that are there for speed, and a KV cache of some scheme."""

    def __init__(self, checkpoint: Checkpoint, capacity: int, kv_cache: str | None) -> None:
        super().__init__(checkpoint, capacity)
        self._scheme = kv_scheme(kv_cache or "f32")
        self.reset()

    def reset(self) -> None:
        self._rows = self._scheme.cache(self._config, self._capacity)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return forward(tokens, self._weights, self._config, self._rows)

    def step(self, token: int) -> np.ndarray:
        return self.prefill([token])[0]

    def read(self, tokens: list[int]) -> np.ndarray:
        return self.prefill(tokens)[-1]

    def greedy(self, tokens: list[int]) -> int:
        return int(np.argmax(self.read(tokens)))


class WrongRead(Shortcuts):
    def read(self, tokens: list[int]) -> np.ndarray:
        return self.prefill(tokens)[0]


class SecondBest(Shortcuts):
    def greedy(self, tokens: list[int]) -> int:
        return int(np.argsort(self.read(tokens))[-2])


class WrongCache(Shortcuts):
    """Says bf16 and stores four bits."""

    def __init__(self, checkpoint: Checkpoint, capacity: int, kv_cache: str | None) -> None:
        super().__init__(checkpoint, capacity, "q4_0" if kv_cache == "bf16" else kv_cache)


class ForgetsTheChunkBefore(Shortcuts):
    """A prompt of more than 32 tokens begins again after them."""

    def read(self, tokens: list[int]) -> np.ndarray:
        if len(tokens) > 32:
            self.reset()
        return super().read(tokens[-32:])


class Batched(Shortcuts):
    """Sequences one after another, each with a cache of its own."""

    order = slice(None)

    def fork(self, sequences: int, capacity: int) -> "Batched":
        other = copy.copy(self)
        other.capacity = capacity
        other._caches = [self._scheme.cache(self._config, capacity) for _ in range(sequences)]
        return other

    def read(self, tokens: list[int], sequence: int | None = None) -> np.ndarray:
        if sequence is None:
            return super().read(tokens)
        return forward(tokens, self._weights, self._config, self._caches[sequence])[-1]

    def step_all(self, tokens: list[int]) -> np.ndarray:
        return np.stack([self.read([token], n) for n, token in enumerate(tokens)])[self.order]


class Swapped(Batched):
    order = slice(None, None, -1)


class LastOfMany(Batched):
    """The last one of more than eight sequences gets the first one's logits."""

    def step_all(self, tokens: list[int]) -> np.ndarray:
        found = super().step_all(tokens)
        return found if len(found) <= 8 else np.concatenate([found[:-1], found[:1]])


class NoRoomForMany(Batched):
    def fork(self, sequences: int, capacity: int) -> "Batched":
        raise ValueError("no room")


class WrongForForty(Shortcuts):
    """Its program for prompts of 40 tokens reads the last of them twice."""

    def read(self, tokens: list[int]) -> np.ndarray:
        return super().read([*tokens, tokens[-1]] if len(tokens) == 40 else tokens)


class Raises(Shortcuts):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        raise RuntimeError("no kernel")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_model(TINY, tmp_path_factory.mktemp("judged"))


@pytest.mark.parametrize("kv_cache", ["f32", "bf16", "int8", "fp8_e5m2"])
def test_an_engine_that_is_right_passes(path: Path, kv_cache: str) -> None:
    passed, text = Judge(Shortcuts, path, "f32").verdict(kv_cache)
    assert passed, text
    assert text.startswith("conforms on tiny")
    assert ("as the golden one" in text) is (kv_cache != "f32")


@pytest.mark.parametrize(
    ("engine", "kv_cache", "said"),
    [
        (WrongRead, "f32", r"read\(tokens\) is not the last row"),
        (SecondBest, "f32", "greedy chose"),
        (SecondBest, "int8", "greedy chose"),
        (WrongCache, "bf16", "KV cache bf16: logits off"),
        (Raises, "f32", "no kernel"),
    ],
)
def test_one_that_is_wrong_does_not(path: Path, engine: Any, kv_cache: str, said: str) -> None:
    passed, text = Judge(engine, path, "f32").verdict(kv_cache)
    assert not passed
    assert re.search(said, text)


PROMPT = [("prefill", {"tokens": 512})]
BATCH = [("batch", {"sequences": 4, "context": 8, "steps": 2})]


def test_what_is_timed_is_judged(path: Path) -> None:
    judge = Judge(Batched, path, "f32")
    assert "prompt of 62 tokens; batch of 4 as each alone" in judge.verdict("bf16", PROMPT + BATCH)[1]
    assert "batch" not in judge.verdict("bf16", PROMPT)[1]
    assert "batch of 3 as each alone" in judge.verdict("bf16", [("batch", {"sequences": 1})])[1]


@pytest.mark.parametrize(
    ("engine", "rows", "said"),
    [
        (ForgetsTheChunkBefore, PROMPT, "at the end of 62 tokens: logits off"),
        (ForgetsTheChunkBefore, [("kv", {"context": 512})], "at the end of 62 tokens: logits off"),
        (WrongForForty, [("prefill", {"tokens": 40})], "at the end of 40 tokens: logits off"),
        (Swapped, BATCH, "sequence 0 of a batch of 4: logits off"),
        (LastOfMany, [("batch", {"sequences": 9})], "sequence 8 of a batch of 9: logits off"),
        (NoRoomForMany, BATCH, "ValueError: no room"),
    ],
)
def test_what_eight_tokens_do_not_show(path: Path, engine: Any, rows: Any, said: str) -> None:
    judge = Judge(engine, path, "f32")
    assert judge.verdict("f32")[0]
    passed, text = judge.verdict("f32", rows)
    assert not passed
    assert said in text


BLOCKS = [("block-diffusion", {"block": 8, "passes": n, "tokens": 9}) for n in (4, 2)]


def golden_diffuse(engine: Any, prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
    options = golden_options(case, engine._config.vocab)
    model = reference_block_model(engine._weights, engine._config, options, len(prompt) + tokens)
    done = block_diffusion(prompt, engine._config, model, tokens, options)
    return done.tokens, len(done.passes)


@pytest.mark.parametrize(
    "case",
    [
        {"preset": "greedy", "threshold": "0", "tokens": 64},
        {"block": 32, "passes": 2, "tokens": 64},
        {"block": 32, "preset": "fast-dllm-v2-dual", "threshold": "1"},
    ],
)
def test_the_text_of_blocks_does_not_hang_on_rounding_ties(case: dict[str, Any]) -> None:
    with embedded_model(BLOCK_MODEL) as folder:
        checkpoint = quietly_opened(folder)
        prompt = Tokenizer(folder / "tokenizer.json").encode(BLOCK_TEXT)
        c, options = checkpoint.config, golden_options(case, checkpoint.config.vocab)
        texts, tokens = [], judged_tokens(case)
        for quantize in (GOLDEN_ARITHMETIC.quantize, Coin(0, GOLDEN_ARITHMETIC), Coin(1, GOLDEN_ARITHMETIC)):
            cache, arithmetic = kv_scheme("bf16").cache(c, BLOCK_ROOM), replace(GOLDEN_ARITHMETIC, quantize=quantize)
            model = reference_block_model(checkpoint.weights, c, options, len(prompt) + tokens, cache, arithmetic)
            done = block_diffusion(prompt, c, model, tokens, options)
            texts.append(done.tokens)
            assert {one.block for one in done.passes} == {0, 1}
    assert texts[0] == texts[1] == texts[2]


def test_blocks_are_held_to_the_golden_decoder(path: Path) -> None:
    def of_another_preset(engine: Any, prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
        return golden_diffuse(engine, prompt, tokens, {"preset": "greedy", "threshold": "0"})

    def a_pass_more(*asked: Any) -> tuple[list[int], int]:
        text, passes = golden_diffuse(*asked)
        return text, passes + 1

    passed, text = Judge(Shortcuts, path, "f32", golden_diffuse).verdict("f32", BLOCKS)
    assert passed, text
    assert "blocks as the golden decoder's on kjv-dlm" in text
    wrong = [
        Judge(Shortcuts, path, "f32", diffuse).verdict("f32", BLOCKS) for diffuse in (of_another_preset, a_pass_more)
    ]
    assert [passed for passed, _ in wrong] == [False, False]
    assert "is not the golden decoder's" in wrong[0][1]
    assert "passes, the golden decoder needs" in wrong[1][1]


def test_a_cache_that_is_wrong_does_not_fail_the_others(path: Path) -> None:
    judge = Judge(WrongCache, path, "f32")
    assert [judge.verdict(kv)[0] for kv in ("bf16", "f32", "int8")] == [False, True, True]
