"""Log-probabilities and greedy tokens of a GGUF file by llama.cpp (xllamacpp); runs in the peers' environment.

    python tests/peers/llama_cpp_logits.py OUT.npz IDS NEW_TOKENS MODEL.gguf

IDS: token ids with commas. OUT: logprobs float64 [tokens, vocab], of the next token at each of IDS; generated int64, up
to NEW_TOKENS of them. Exit code 3 where llama.cpp refuses the file. KV cache in float32 and no flash attention: the
defaults round K and V to float16.
"""

import sys

import numpy as np
import xllamacpp as xl


def main(out: str, tokens: str, new_tokens: str, model: str) -> int:
    ids = [int(token) for token in tokens.split(",")]
    try:
        server = open_server(model)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 3
    # Each prefix finds the one before it in the cache: the ids are read once, one at a time.
    rows = [logprobs_behind(server, ids[: n + 1]) for n in range(len(ids))]
    generated = complete(server, ids, max_tokens=int(new_tokens), logprobs=1)
    np.savez(out, logprobs=np.stack(rows), generated=[token["id"] for token in generated])
    return 0


def open_server(model: str) -> xl.Server:
    params = xl.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 512, 1, False, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_type_k = params.cache_type_v = xl.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xl.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xl.Server(params)


def logprobs_behind(server: xl.Server, ids: list[int]) -> np.ndarray:
    """float64 [vocab]: log-softmax of the raw logits, whatever the sampler then bans."""
    (token,) = complete(server, ids, max_tokens=1, logprobs=1 << 20, ignore_eos=True)
    entries = sorted((entry["id"], entry["logprob"]) for entry in token["top_logprobs"])
    assert [token for token, _ in entries] == list(range(len(entries))), "some of the vocabulary is missing"
    return np.array([value for _, value in entries])


def complete(server: xl.Server, ids: list[int], **options: object) -> list[dict[str, object]]:
    """One entry a generated token, greedily."""
    answer = server.handle_completions({"prompt": ids, "temperature": 0, "cache_prompt": True, **options})
    content: list[dict[str, object]] = answer["choices"][0]["logprobs"]["content"]
    return content


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
