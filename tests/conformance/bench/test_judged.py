"""What is judged before anything is timed, beyond the levels of ``tritgold check``."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritgold.checkpoint import Checkpoint
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.model import forward
from tritgold_conformance.bench.judged import Judge
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.engines.reference import ReferenceEngine

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


def test_a_cache_that_is_wrong_does_not_fail_the_others(path: Path) -> None:
    judge = Judge(WrongCache, path, "f32")
    assert [judge.verdict(kv)[0] for kv in ("bf16", "f32", "int8")] == [False, True, True]
