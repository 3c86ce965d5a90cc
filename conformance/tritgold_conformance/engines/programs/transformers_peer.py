"""transformers as a peer: logits and activations, in one dtype with eager attention, one thread.

Run by ``peer_program.py`` in the peers' environment. The trace has the names of its own modules
(``peers.our_names`` translates them).
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def answers(checkpoint: str, requests: dict[str, Any], dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
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
    """Logits [tokens, vocab], computed through its own cache, and the seconds of each chunk."""
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

    arrays: ``<module>.output`` float32, only the given rows; ``<linear>.codes`` int8 and ``.scale`` float32 of its
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
        """Remove all hooks."""
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
    """int8 codes [tokens, in] and scale [tokens], by the quantiser of the class."""
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
