"""llama.cpp's own server (xllamacpp) on a GGUF file, at a port: python xllamacpp_server.py MODEL PORT [--defaults].

Without --defaults its KV cache is float32 and flash attention is off. Runs until it is ended.
"""

import signal
import sys


def main(model: str, port: str, *options: str) -> None:
    """Serve."""
    import xllamacpp as xl

    params = xl.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.warmup, params.port = 512, 1, False, int(port)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if "--defaults" not in options:
        params.cache_type_k = params.cache_type_v = xl.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xl.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xl.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
