"""llama.cpp in this process, through xllamacpp, as its users have it: KV cache in float16, flash attention as it
chooses by itself. Asked like the ``LlamaServer`` of a built program.
"""

import importlib
import importlib.metadata
import time
from typing import Any

from tritgold.errors import EngineError, MissingDependencyError
from tritgold_conformance.bench.llama_server import SHOWN
from tritgold_conformance.bench.memory import peak_memory
from tritgold_conformance.bench.peer_judge import Shown, shown


class LlamaWheel:
    """One model in one file. positions: room for so many, in all slots together. load: seconds. options: the defaults
    of xllamacpp. port: at which it also listens.
    """

    def __init__(self, path: str, positions: int, threads: int, slots: int = 1) -> None:
        """Raises MissingDependencyError without xllamacpp, EngineError ``engine-load`` if it refuses the file."""
        try:
            xl = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise MissingDependencyError(
                f"the peer llama.cpp needs xllamacpp ({error})",
                kind="missing-dependency",
                thing="xllamacpp",
                hint="pip install 'tritgold[peers]'",
            ) from error
        params = xl.CommonParams()
        params.model.path, params.n_parallel = path, slots
        params.n_ctx = positions
        params.warmup, params.verbosity = True, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        types = {int(kind): name for name, kind in vars(xl.ggml_type).items() if name.startswith("GGML_TYPE_")}
        flash = {int(k): name for name, k in vars(xl.llama_flash_attn_type).items() if name.startswith("LLAMA_FLASH")}
        self.options = {
            "type_k": types.get(int(params.cache_type_k), str(params.cache_type_k)).removeprefix("GGML_TYPE_"),
            "type_v": types.get(int(params.cache_type_v), str(params.cache_type_v)).removeprefix("GGML_TYPE_"),
            "flash_attn": flash.get(int(params.flash_attn_type), "").rpartition("_")[2].lower(),
            "batch": str(params.n_batch),
            "ubatch": str(params.n_ubatch),
        }
        begin = time.perf_counter()
        try:
            self._server: Any = xl.Server(params)
        except RuntimeError as error:
            raise EngineError(f"refuses the file: {error}", kind="engine-load", thing="llama.cpp", file=path) from error
        self.load = time.perf_counter() - begin
        self.port = int(str(self._server.listening_address).rpartition(":")[2])

    def complete(self, ids: list[int], steps: int, **options: Any) -> dict[str, Any]:
        """The answer to a prompt, greedy, with ``steps`` tokens; ``timings`` are llama.cpp's own."""
        body = {"prompt": ids, "max_tokens": steps, "temperature": 0, "ignore_eos": True, **options}
        return self._server.handle_completions(body)

    def next_tokens(self, ids: list[int], steps: int) -> list[Shown]:
        """The generated tokens, and the most likely tokens at each position."""
        return shown(self.complete(ids, steps, logprobs=SHOWN))

    def versions(self) -> dict[str, str]:
        """The version of the package."""
        return {"xllamacpp": importlib.metadata.version("xllamacpp")}

    def peak_memory(self) -> int | None:
        """VmHWM of this process, bytes."""
        return peak_memory()

    def close(self) -> None:
        """Free the model."""
        self._server = None
