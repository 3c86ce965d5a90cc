"""llama.cpp's own quantiser, as ``llama-quantize IN OUT TYPE`` runs it; in the peers' environment.

    python tests/peers/llama_cpp_quantize.py IN.gguf OUT.gguf TYPE

TYPE: of ``enum llama_ftype`` without its prefix, such as TQ2_0. Its release goes to stdout. Through llama-cpp-py-sync,
whose library has ``llama_model_quantize``; xllamacpp's has not. Exit code 3 where that library is not there or does not
load, as its Linux build does not with a glibc below 2.38.
"""

import sys


def main(source: str, target: str, kind: str) -> int:
    try:
        from llama_cpp_py_sync import __llama_cpp_commit__, __version__
        from llama_cpp_py_sync._cffi_bindings import get_ffi, get_lib

        ffi, library = get_ffi(), get_lib()
    except (ImportError, OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 3
    library.llama_backend_init()
    params = ffi.new("llama_model_quantize_params *", library.llama_model_quantize_default_params())
    params.nthread, params.ftype = 1, getattr(library, f"LLAMA_FTYPE_MOSTLY_{kind}")
    print(f"llama-cpp-py-sync {__version__}, llama.cpp {__llama_cpp_commit__}")
    return int(library.llama_model_quantize(source.encode(), target.encode(), params))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
