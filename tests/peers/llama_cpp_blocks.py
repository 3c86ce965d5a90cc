"""llama.cpp's own Q8_K and ternary dot products on given numbers; runs in the peers' environment.

    python tests/peers/llama_cpp_blocks.py IN.npz OUT.npz

IN: x float32 [tokens, in]; weights uint8, TQ2_0 or TQ1_0 rows of ``in`` columns; kind, the type's name in lower case.
OUT: codes int8 [tokens, in], scales float32 [tokens, in / 256], out float32 [tokens, rows], and generic, the same by
the kernel without SIMD. Calls the functions that the wheel of xllamacpp exports; no model, nothing of tritgold.
"""

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np

Q8_K = np.dtype([("scale", "<f4"), ("codes", "i1", 256), ("sums", "<i2", 16)])


def library() -> ctypes.CDLL:
    """The extension module of xllamacpp, which holds all of llama.cpp."""
    found = importlib.util.find_spec("xllamacpp")
    assert found is not None, "xllamacpp is not installed"
    (path,) = Path((found.submodule_search_locations or [])[0]).glob("xllamacpp*.so")
    return ctypes.CDLL(str(path))


def main(source: str, target: str) -> None:
    lib, given = library(), np.load(source)
    lib.ggml_cpu_init()  # fills the float16 table, without which every scale is 0
    x, weights, kind = given["x"], given["weights"], str(given["kind"])
    blocks = np.zeros((x.shape[0], x.shape[1] // 256), Q8_K)
    for row, values in zip(blocks, x, strict=True):
        lib.quantize_row_q8_K(at(values), at(row), ctypes.c_int64(values.size))
    results = {"codes": blocks["codes"].reshape(x.shape), "scales": blocks["scale"]}
    for name, suffix in (("out", ""), ("generic", "_generic")):
        dot = getattr(lib, f"ggml_vec_dot_{kind}_q8_K{suffix}")
        results[name] = np.array([[product(dot, w, row, x.shape[1]) for w in weights] for row in blocks], np.float32)
    np.savez(target, **results)


def product(dot: Any, weight: np.ndarray, row: np.ndarray, size: int) -> float:
    result, step = ctypes.c_float(), ctypes.c_size_t(0)
    dot(ctypes.c_int(size), ctypes.byref(result), step, at(weight), step, at(row), step, ctypes.c_int(1))
    return result.value


def at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


if __name__ == "__main__":
    main(*sys.argv[1:])
