"""llama.cpp (xllamacpp) as a peer: log-probabilities of the whole vocabulary after each prefix; it never shows logits.

Run by ``peer_program.py`` in the peers' environment. The answers come from llama.cpp's own server, with a KV cache in
float32 or with llama.cpp's defaults.
"""

import statistics
import sys
import time
from typing import Any

import numpy as np

RUNS, STEPS = 3, 16  # repetitions, and generated tokens, of a timing


def answers(model: str, requests: dict[str, Any], cache: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The next token after each prefix, and log-probabilities of the whole vocabulary."""
    from importlib.metadata import version

    said: dict[str, Any] = {"versions": {"xllamacpp": version("xllamacpp")}}
    tokens = (requests.get("text") or {}).get("tokens")
    if not tokens:
        return {}, said
    try:
        server = open_server(model, max(512, len(tokens) + 8 + STEPS), cache == "defaults")
    except RuntimeError as error:
        sys.exit(f"llama.cpp refuses the file: {error}")
    # The cache has each previous prefix, so every id is read only once, one at a time.
    rows = [logprobs_after(server, tokens[: n + 1]) for n in range(len(tokens))]
    best = np.array([-1 if row is None else int(np.argmax(row)) for row in rows])
    width = max((len(row) for row in rows if row is not None), default=0)
    logprobs = np.stack([np.zeros(width) if row is None else row for row in rows])
    ids = np.tile(np.arange(width), (len(tokens), 1))
    said["seconds"] = median_seconds(server, tokens)
    return {"text/token": best, "text/ids": ids, "text/logprobs": logprobs}, said


def median_seconds(server: Any, tokens: list[int]) -> dict[str, float]:
    """Medians of RUNS calls of its server, including JSON and sampling. prefill: all tokens, without a cache.

    step: the additional time of STEPS more tokens, divided by STEPS; missing if not positive.
    """

    def seconds(count: int, cached: bool) -> float:
        began = time.perf_counter()
        server.handle_completions(
            {"prompt": tokens, "temperature": 0, "max_tokens": count, "cache_prompt": cached, "ignore_eos": True}
        )
        return time.perf_counter() - began

    prefill, long, short = (
        statistics.median(seconds(count, cached) for _ in range(RUNS))
        for count, cached in ((1, False), (1 + STEPS, True), (1, True))
    )
    return {"prefill": prefill} | ({"step": (long - short) / STEPS} if long > short else {})


def open_server(model: str, context: int = 512, defaults: bool = False, slots: int = 1, port: int = 0) -> Any:
    """llama.cpp's server on a GGUF file; it also listens on this port, 0: a free one. slots: texts in a pass.

    KV cache in float32 and no flash attention; with ``defaults``, llama.cpp's own, which round K and V to float16.
    Raises RuntimeError if it refuses the file.
    """
    import xllamacpp as xl

    params = xl.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.port = context, slots, port
    params.warmup, params.verbosity = False, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if not defaults:
        params.cache_type_k = params.cache_type_v = xl.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xl.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xl.Server(params)


def logprobs_after(server: Any, ids: list[int]) -> np.ndarray | None:
    """float64 [vocab]: log-softmax of the raw logits, before the sampler bans any token.

    None if the most likely token is part of a character: then the server shows none.
    """
    content = complete(server, ids, max_tokens=1, logprobs=1 << 20, ignore_eos=True)
    if content is None:
        return None
    (token,) = content
    entries = sorted((entry["id"], entry["logprob"]) for entry in token["top_logprobs"])
    assert [token for token, _ in entries] == list(range(len(entries))), "some of the vocabulary is missing"
    return np.array([value for _, value in entries], np.float64)


def complete(server: Any, ids: list[int], **options: object) -> list[dict[str, Any]] | None:
    """One entry for each generated token, greedy. None if the server shows no log-probabilities."""
    answer = server.handle_completions({"prompt": ids, "temperature": 0, "cache_prompt": True, **options})
    shown = answer["choices"][0]["logprobs"]
    return None if shown is None else list(shown["content"])
