"""KV-cache schemes: the error of attention against bits a value, by context length, and what it does to ``kjv-ar``.

``python -m measure.kv_error > docs/data/kv-error.json``: some minutes.

``attention``: one query over standard normal keys and values (``tritgold.kv_cache.attention_error``), plain and with
one channel of every key 30 times as large, as some channels of real keys are. ``model``: kjv-ar reads a text token by
token; its next-token distributions are compared with those of the exact cache.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from measure import text
from measure.report import mean, rounded, show
from tritgold.kv_cache.attention_error import attention_errors
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.model import forward
from tritgold.portable_math import exp, pairwise_sum

SCHEMA = "tritgold.kv_error/1"
HEADS, HEAD_DIM = 8, 128
OUTLIERS = (1.0, 30.0)
CONTEXTS = (128, 512, 2048)
TOKENS = 192
SCHEMES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("f32", {}),
    ("f16", {}),
    ("bf16", {}),
    ("fp8_e4m3", {}),
    ("fp8_e5m2", {}),
    ("int8", {}),
    ("fake_fp8", {}),
    ("fake_fp8", {"overwrite": False}),
    ("q8_0", {}),
    ("q5_0", {}),
    ("q4_1", {}),
    ("q4_0", {}),
    ("hadamard", {"inner": "q4_0"}),
    ("kivi4", {}),
    ("kivi2", {}),
    ("affine", {}),
    ("hadamard", {}),
    ("a4_8", {}),
    ("turboquant", {"bits": 4}),
    ("turboquant", {"bits": 3}),
    ("turboquant", {"bits": 2}),
    ("split", {}),
)


def schemes() -> list[KvScheme]:
    """Those of the table, in its order."""
    return [kv_scheme(name, **options) for name, options in SCHEMES]


def report(contexts: tuple[int, ...] = CONTEXTS, tokens: int = TOKENS) -> dict[str, Any]:
    """The measurement. tokens: of the text that kjv-ar reads."""
    return {
        "schema": SCHEMA,
        "shape": {"heads": HEADS, "kv_heads": HEADS, "head_dim": HEAD_DIM, "seed": 0},
        "attention": list(attention(contexts)),
        "model": list(model(tokens)),
    }


def attention(contexts: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """A row for each scheme, context and outlier."""
    for outlier in OUTLIERS:
        for error in attention_errors(
            schemes(), contexts, heads=HEADS, kv_heads=HEADS, head_dim=HEAD_DIM, outlier=outlier
        ):
            yield {
                "scheme": error.scheme,
                "bits": error.bits_per_value,
                "context": error.context,
                "outlier": outlier,
                "cosine": rounded(error.cosine),
                "relative": rounded(error.relative),
            }


def model(tokens: int) -> Iterator[dict[str, Any]]:
    """A row for each scheme: the mean divergence (nats a token) and how often the likeliest token is the same."""
    read = text.golden_text(tokens)
    exact = _steps(kv_scheme("f32"), read)
    for scheme in schemes():
        got = _steps(scheme, read)
        divergence = pairwise_sum(exp(exact) * (exact - got))
        same = np.argmax(exact, axis=1) == np.argmax(got, axis=1)
        yield {
            "scheme": scheme.id,
            "bits": scheme.bits_per_value(text.opened("kjv-ar").config),
            "tokens": tokens,
            "divergence": mean(divergence),
            "same_token": mean(same),
        }


def _steps(scheme: KvScheme, read: list[int]) -> np.ndarray:
    """ln p of every token after every prefix, float64 [tokens, vocab]; each token is a pass of its own."""
    opened = text.opened("kjv-ar")
    cache = scheme.cache(opened.config, len(read))
    logits = [forward([token], opened.weights, opened.config, cache)[0] for token in read]
    return text.log_shares(np.array(logits))


if __name__ == "__main__":
    show(report())
