"""Another instruction set, the same integers: what XLA compiles for a processor without AVX-512 and AMX."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.serialize_executable import serialize

from tritgold.machine import instructions

CODE = """
import numpy as np
from jax.experimental.serialize_executable import serialize
from engine_cases import MIXED, make_weights
from tritgold.model import forward
from tritgold_xla import XlaEngine
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes

rng = np.random.default_rng(158)
trits = rng.integers(-1, 2, (37, 301)).astype(np.int8)
weight = Planes(*planes.packed(trits))
for tokens in (1, 9):
    codes = rng.integers(-128, 128, (tokens, 301)).astype(np.int8)
    for name, way in FORMULATIONS.items():
        program = jit(way.accumulate, level=2).lower(codes, weight).compile()
        assert b"+avx512" not in serialize(program)[0], "the flag changes nothing"
        sums = np.asarray(program(codes, weight))
        assert np.array_equal(sums, codes.astype(int) @ trits.T.astype(int)), (name, tokens)
weights = make_weights(MIXED)
engine = XlaEngine(MIXED, weights)
logits = np.stack([engine.step(token) for token in (1, 2, 3)])
golden = forward([1, 2, 3], weights, MIXED)
print(np.abs(logits - golden).max() / np.abs(golden).max() / 2.0**-24)
"""


@pytest.mark.skipif("avx512" not in instructions(), reason="the processor has no AVX-512 to be without")
def test_without_the_widest_registers_integers_are_the_same_and_logits_as_near(tmp_path):
    # In a process of its own, for XLA reads its flags once, with a folder for programs of its own.
    env = os.environ | {
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    program = jax.jit(lambda x: x + 1).lower(jnp.ones(64)).compile()
    assert b"+avx512" in serialize(program)[0], "what is looked for below stands in every program of this process"
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 50
