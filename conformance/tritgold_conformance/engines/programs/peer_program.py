"""transformers and llama.cpp (xllamacpp) as programs of docs/command-protocol.md; runs in the peers' environment.

    python peer_program.py transformers:DTYPE|llama.cpp:float32|llama.cpp:defaults INPUTS OUTPUTS

Both open the checkpoint that config.json names, with their own readers. transformers: logits and activations, in
DTYPE (torch's name) with eager attention; its trace has its own module names (``transformers_names`` translates them).
llama.cpp, with a KV cache in float32 or as it comes: log-probabilities of the whole vocabulary after each prefix, from
its own server; it never shows logits.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Facts = dict[str, Any]  # of answer.json: versions, seconds
PROTOCOL = "tritgold.command/1"
RUNS, STEPS = 3, 16  # of what is timed


def main(peer: str, inputs: Path, outputs: Path) -> None:
    """Answer the requests of one run."""
    from safetensors.numpy import save_file

    config, requests = (json.loads((inputs / name).read_text()) for name in ("config.json", "requests.json"))
    peer, _, precision = peer.partition(":")
    answer = {"transformers": transformers_answers, "llama.cpp": llama_cpp_answers}[peer]
    arrays, facts = answer(config["checkpoint"], requests, precision)
    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, outputs / "outputs.safetensors")
    header = {"protocol": PROTOCOL, "name": peer, **facts}
    (outputs / "answer.json").write_text(json.dumps(header))


# ---- transformers ----------------------------------------------------------------------------------------------------


def transformers_answers(checkpoint: str, requests: dict[str, Any], dtype: str) -> tuple[Arrays, Facts]:
    """Logits of every session, and the trace. Its pass warms what is then timed, around the calls of the model."""
    model = open_transformers(checkpoint, dtype)
    import torch
    import transformers

    found, seconds = {}, {}
    with torch.no_grad():
        if requests.get("trace"):
            tokens = torch.tensor(requests["trace"]["tokens"])
            recorder = Recorder(model, torch.arange(len(tokens)))
            logits = model(tokens[None]).logits[0]
            found = {f"trace/{name}": _numpy(array) for name, array in recorder.arrays.items()}
            found["trace/lm_head.output"] = _numpy(logits)
            recorder.remove()
        for session in requests.get("logits") or []:
            name = session["id"]
            found[f"logits/{name}"], took = _session(model, session["tokens"], session["chunks"])
            if name in ("prefill", "steps"):
                seconds["prefill" if name == "prefill" else "step"] = statistics.median(took)
    versions = {module.__name__: module.__version__ for module in (transformers, torch)}
    return found, {"versions": versions, "seconds": seconds}


def _numpy(tensor: Any) -> np.ndarray:
    """Floats as float32, which holds every narrower one."""
    return np.asarray(tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy())


def open_transformers(checkpoint: str, dtype: str = "float32") -> Any:
    """The model in this dtype, one thread. Ends the program where a weight is missing or left over."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # before torch loads: the quantisers are wrapped in torch.compile
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    model, problems = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=getattr(torch, dtype), attn_implementation="eager", output_loading_info=True
    )
    if any(problems.values()):
        sys.exit(f"transformers does not find or does not use some weights: {problems}")
    # Its offline deserialiser leaves embedding and norms bf16 beside float32 linears; widening is exact.
    return model.to(getattr(torch, dtype)).eval()


def _session(model: Any, tokens: list[int], chunks: list[int]) -> tuple[np.ndarray, list[float]]:
    """Logits [tokens, vocab], read through its own cache, and the seconds of each chunk."""
    import torch

    rows, seconds, cache, start = [], [], None, 0
    for length in chunks:
        began = time.perf_counter()
        out = model(torch.tensor([tokens[start : start + length]]), past_key_values=cache, use_cache=True)
        rows.append(_numpy(out.logits[0]))
        seconds.append(time.perf_counter() - began)
        cache, start = out.past_key_values, start + length
    return np.concatenate(rows), seconds


class Recorder:
    """Forward hooks on every linear, norm, layer and on the embedding.

    arrays: ``<module>.output`` float32, the given rows of it; ``<linear>.codes`` int8 and ``.scale`` float32 of its
    input, all rows, once for linears that share an input (q, k, v; gate, up).
    """

    def __init__(self, model: Any, rows: Any) -> None:
        from transformers.integrations.bitnet import AutoBitLinear, BitLinear

        self.rows = rows
        self.arrays: dict[str, Any] = {}
        self._hooks = []
        # Granite multiplies after its embedding, Gemma within; Gemma norms q and k with the heads before the tokens.
        self._embedding_factor = getattr(model.config, "embedding_multiplier", 1.0)
        self._heads_first = str(model.config.model_type).startswith("gemma3")
        for name, module in model.named_modules():
            if isinstance(module, BitLinear | AutoBitLinear):
                self._hooks.append(module.register_forward_hook(self.linear(name)))
            elif type(module).__name__.endswith(("RMSNorm", "DecoderLayer", "Embedding")) and "rotary" not in name:
                self._hooks.append(module.register_forward_hook(self.output(name)))

    def remove(self) -> None:
        """Take the hooks off again."""
        for hook in self._hooks:
            hook.remove()

    def output(self, name: str) -> Callable[..., None]:
        """A hook that keeps the output."""

        def hook(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
            if self._heads_first and name.endswith(("q_norm", "k_norm")):
                output = output.transpose(1, 2)
            if name.endswith("embed_tokens"):
                output = output * self._embedding_factor
            self.arrays[f"{name}.output"] = output[0, self.rows].clone()

        return hook

    def linear(self, name: str) -> Callable[..., None]:
        """A hook that keeps the output, and codes and scale of the input."""
        import torch

        parent, _, kind = name.rpartition(".")
        first = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}.get(kind, kind)

        def hook(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
            self.output(name)(module, arguments, output)
            codes, scale = activation_codes(module, arguments[0][0])
            for what, array in (("codes", codes), ("scale", scale)):
                stored = self.arrays.setdefault(f"{parent}.{first}.{what}", array)
                assert torch.equal(stored, array), f"{name} and {first} quantise the same input differently"

        return hook


def activation_codes(module: Any, x: Any) -> tuple[Any, Any]:
    """int8 codes [tokens, in] and scale [tokens], by the class' own quantiser."""
    import torch
    from transformers.integrations.bitnet import ActQuant, BitLinear

    if isinstance(module, BitLinear):
        codes, scale = module.activation_quant(x)
        return codes, scale[:, 0]
    # ActQuant returns codes / scale: its formula gives both, and its result proves that they are the ones it used.
    wide = x.float()
    scale = 127 / wide.abs().max(dim=-1, keepdim=True).values.clamp(min=1e-5)
    codes = (wide * scale).round().clamp(-128, 127)
    assert torch.equal((codes / scale).to(x.dtype), ActQuant.apply(x))
    return codes.to(torch.int8), scale[:, 0]


# ---- llama.cpp -------------------------------------------------------------------------------------------------------


def llama_cpp_answers(model: str, requests: dict[str, Any], cache: str) -> tuple[Arrays, Facts]:
    """The next token after each prefix, and log-probabilities of the whole vocabulary."""
    from importlib.metadata import version

    said: Facts = {"versions": {"xllamacpp": version("xllamacpp")}}
    tokens = (requests.get("text") or {}).get("tokens")
    if not tokens:
        return {}, said
    try:
        server = open_server(model, max(512, len(tokens) + 8 + STEPS), cache == "defaults")
    except RuntimeError as error:
        sys.exit(f"llama.cpp refuses the file: {error}")
    # Each prefix finds the one before it in the cache: the ids are read once, one at a time.
    rows = [logprobs_behind(server, tokens[: n + 1]) for n in range(len(tokens))]
    best = np.array([-1 if row is None else int(np.argmax(row)) for row in rows])
    width = max((len(row) for row in rows if row is not None), default=0)
    logprobs = np.stack([np.zeros(width) if row is None else row for row in rows])
    ids = np.tile(np.arange(width), (len(tokens), 1))
    said["seconds"] = llama_cpp_seconds(server, tokens)
    return {"text/token": best, "text/ids": ids, "text/logprobs": logprobs}, said


def llama_cpp_seconds(server: Any, tokens: list[int]) -> dict[str, float]:
    """Medians of RUNS calls of its server, JSON and sampling included. prefill: all tokens, nothing of them cached.

    step: what STEPS tokens more take than one, over STEPS.
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


def open_server(model: str, context: int = 512, defaults: bool = False) -> Any:
    """llama.cpp's server on a GGUF file; also on a free port of this machine. RuntimeError where it refuses the file.

    KV cache in float32 and no flash attention: the defaults, which may be had, round K and V to float16.
    """
    import xllamacpp as xl

    params = xl.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity, params.port = context, 1, False, 0, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if not defaults:
        params.cache_type_k = params.cache_type_v = xl.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xl.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xl.Server(params)


def logprobs_behind(server: Any, ids: list[int]) -> np.ndarray | None:
    """float64 [vocab]: log-softmax of the raw logits, whatever the sampler then bans.

    None where the token that it would write is a part of a character: then it shows none.
    """
    content = complete(server, ids, max_tokens=1, logprobs=1 << 20, ignore_eos=True)
    if content is None:
        return None
    (token,) = content
    entries = sorted((entry["id"], entry["logprob"]) for entry in token["top_logprobs"])
    assert [token for token, _ in entries] == list(range(len(entries))), "some of the vocabulary is missing"
    return np.array([value for _, value in entries], np.float64)


def complete(server: Any, ids: list[int], **options: object) -> list[dict[str, Any]] | None:
    """One entry a generated token, greedily. None where the server shows no log-probabilities."""
    answer = server.handle_completions({"prompt": ids, "temperature": 0, "cache_prompt": True, **options})
    shown = answer["choices"][0]["logprobs"]
    return None if shown is None else list(shown["content"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
