"""ik_llama.cpp through ik-llama-cpp-python as a program of docs/command-protocol.md: logits of every session.

python ik_wheel_program.py INPUTS OUTPUTS

One thread, its KV cache of float16, no flash attention. The package shows the last logits only, so batches ask for all.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from answering import Read, answer, asked
from ik_llama_cpp import _ctypes_api as c_api
from ik_llama_cpp._internals import IkContext, IkModel, make_batch_range

NAME = "ik-llama-cpp-python"


def main(inputs: Path, outputs: Path) -> None:
    """Answer the requests of one run."""
    config, requests, _ = asked(inputs)
    model = IkModel(config["checkpoint"], use_mmap=False)
    context = IkContext(model, n_ctx=512, n_threads=1, flash_attn=False)

    def begin() -> Read:
        context.kv_cache_clear()
        position = 0

        def read(tokens: list[int]) -> np.ndarray:
            nonlocal position
            batch = make_batch_range(tokens, pos_start=position)
            for n in range(len(tokens)):
                batch.logits[n] = 1
            if context.decode(batch):
                raise RuntimeError("llama_decode failed")
            c_api.llama_batch_free(batch)
            position += len(tokens)
            rows = [np.ctypeslib.as_array(context.get_logits(n), (model.n_vocab,)) for n in range(len(tokens))]
            return np.array(rows, np.float32)

        return read

    answer(outputs, requests, begin, NAME, {NAME: version(NAME)})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
