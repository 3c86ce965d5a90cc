"""What the engine promises to whoever calls it: state, refusals, provenance."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import LLAMA, MIXED, Matrix, make_weights

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ContextError, NonFiniteError
from tritgold.golden import embedded_model
from tritgold.model import forward
from tritgold_xla import XlaEngine, model
from tritgold_xla.model import forward as forward_programs
from tritgold_xla.runtime.flags import MODE


def test_versions_and_provenance(cases):
    engine = cases["llama"].engine
    assert engine.name == "xla"
    assert engine.versions() == {"jax": jax.__version__, "jaxlib": jax.lib.__version__, "device": "cpu"}
    trace = cases["llama"].trace
    assert (trace.engine, trace.mode, trace.versions) == ("xla", MODE.id, engine.versions())


@pytest.mark.parametrize(
    ("tokens", "kind"),
    [
        ([], "no-tokens"),
        ([[1, 2]], "no-tokens"),
        ([1.0], "no-tokens"),
        ([0, 101], "token-id"),
        ([-1], "token-id"),
        ([2**40], "token-id"),
        ([1] * 160, "context-length"),
    ],
)
def test_refused_tokens_leave_the_state_as_it_was(cases, tokens, kind):
    engine, prompt = cases["llama"].engine, cases["llama"].tokens
    engine.reset()
    engine.prefill(prompt[:5])
    with pytest.raises(ContextError) as refused:
        engine.prefill(tokens)
    assert refused.value.kind == kind
    assert engine.length == 5
    after = engine.step(prompt[5])
    engine.reset()
    engine.prefill(prompt[:5])
    np.testing.assert_array_equal(engine.step(prompt[5]), after)
    if kind != "context-length":
        with pytest.raises(ContextError):
            engine.trace(tokens)


def test_a_cache_that_is_smaller_than_the_context():
    engine = XlaEngine(LLAMA, make_weights(LLAMA), capacity=6)
    with pytest.raises(ContextError, match="cache-full"):
        engine.prefill([1] * 7)
    with pytest.raises(ContextError, match="context-length"):
        engine.prefill([1] * 161)
    with pytest.raises(ContextError, match="cache-full"):
        engine.trace([1] * 7)
    for capacity in (0, -1, 161):
        with pytest.raises(ContextError, match="capacity"):
            XlaEngine(LLAMA, make_weights(LLAMA), capacity)


def test_activations_that_are_not_finite_are_refused_and_forgotten(cases):
    # Token 66 is infinite, and its keys and values NaN; none of that may be seen again.
    good, weights = cases["mixed"], make_weights(MIXED)
    table = weights.embedding.array.copy()
    table[66] = np.inf
    config = replace(MIXED, tied_head=False)  # a tied head would be infinite too
    engine = XlaEngine(config, replace(weights, embedding=Matrix(table), head=weights.embedding))
    prompt = [t for t in good.tokens if t != 66]
    expected = good.engine.trace(prompt)["logits"]
    for call in (engine.prefill, engine.trace):
        with pytest.raises(NonFiniteError, match=r"layers\.0\.attn_in: .*activation-non-finite"):
            call([*prompt[:3], 66])
    first = engine.prefill(prompt[:3])
    with pytest.raises(NonFiniteError):
        engine.prefill([5, 66])
    assert engine.length == 3
    logits = np.concatenate([first, engine.prefill(prompt[3:])])
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


def test_logits_that_are_not_finite_are_refused(cases):
    weights = make_weights(MIXED)
    table = weights.embedding.array.copy()
    table[66] = np.nan
    engine = XlaEngine(MIXED, replace(weights, embedding=Matrix(table)))
    for call in (engine.prefill, engine.trace, engine.read, engine.greedy):
        with pytest.raises(NonFiniteError, match="logits"):
            call([1, 2])
    assert engine._screens, "the greedy head was not the screened one"
    assert engine.length == 0


def test_a_screen_compiles_no_other_program_anew():
    # Programs that do not read it are not to take it as an argument.
    engine = XlaEngine(LLAMA, make_weights(LLAMA), 64, screen=True)
    for token in (1, 2):
        engine.step(token)
    before = forward_programs._cache_size()
    engine.greedy([3])
    engine.step(4)
    engine.greedy([5])
    assert forward_programs._cache_size() <= before + 1


def test_engines_of_nearly_the_same_capacity_share_their_programs():
    weights, programs = make_weights(LLAMA), []
    forward_programs.clear_cache()
    for capacity in (8, 100, 129):  # the cache of the last one allocates more
        XlaEngine(LLAMA, weights, capacity).step(1)
        programs.append(forward_programs._cache_size())
    assert programs[0] == programs[1] < programs[2]


def test_a_cache_that_an_interrupted_call_has_used_up_is_made_anew(monkeypatch):
    engine, other = (XlaEngine(LLAMA, make_weights(LLAMA), 8) for _ in range(2))
    whole = model.forward

    def interrupted(*arguments, **static):
        whole(*arguments, **static)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.step(1)
    engine.reset()
    np.testing.assert_array_equal(engine.step(2), other.step(2))


@pytest.mark.parametrize("block", [0, -1, 1.5])
def test_a_block_of_no_positions_is_refused(cases, block):
    # With -1 no chunk was read, and the tokens counted.
    engine = cases["mixed"].engine
    engine.reset()
    with pytest.raises(ContextError, match=r"block: cannot be.*1 or more.*\[block\]"):
        engine.read([1, 2, 3], block=block)
    assert engine.length == 0


def test_a_trace_leaves_the_cache_alone(cases):
    engine, tokens = cases["mixed"].engine, cases["mixed"].tokens
    engine.reset()
    engine.prefill(tokens[:3])
    before = jax.tree.map(np.array, engine._cache)
    engine.trace(tokens[3:])
    assert engine.length == 3
    jax.tree.map(np.testing.assert_array_equal, engine._cache, before)


def test_results_are_the_callers_own(cases):
    engine, tokens = cases["mixed"].engine, cases["mixed"].tokens
    engine.reset()
    logits = engine.prefill(tokens)
    kept = logits.copy()
    assert (logits.dtype, logits.shape) == (np.float32, (len(tokens), MIXED.vocab))
    engine.reset()
    again = engine.prefill(tokens)
    again[:] = 0  # writable, and nobody else's
    np.testing.assert_array_equal(logits, kept)
    engine.reset()
    assert engine.step(tokens[0]).shape == (MIXED.vocab,)


@pytest.mark.parametrize("screen", [True, False])
def test_greedy_is_the_largest_logit_screened_or_not(screen):
    weights = make_weights(LLAMA)
    engine, logits = XlaEngine(LLAMA, weights, 64, screen=screen), XlaEngine(LLAMA, weights, 64)
    token = [3, 1, 4]
    for number in range(1, 9):
        likeliest = int(np.argmax(logits.read(token)))
        assert engine.greedy(token) == likeliest
        assert engine.screened + engine.unscreened == (number if screen else 0)
        token = [likeliest]
    assert engine.length == logits.length == 10
    assert (engine._screen is not None) == screen, "memory that is not used"


def test_the_head_is_screened_where_one_thread_computes(monkeypatch):
    engine = XlaEngine(LLAMA, make_weights(LLAMA), 8)
    head = engine._parameters.head
    for kind, threads, kernels, screens in [
        (jnp.bfloat16, 1, True, True), (jnp.bfloat16, 2, True, False), (jnp.bfloat16, 2, False, True),
        (jnp.float32, 2, True, True),
    ]:  # fmt: skip
        engine._parameters = engine._parameters._replace(head=head.astype(kind))
        monkeypatch.setattr("tritgold_xla.engine.threads", lambda threads=threads: threads)
        monkeypatch.setattr("tritgold_xla.engine.library_dots", lambda kernels=kernels: kernels)
        assert engine._screening_pays() == screens


@pytest.mark.parametrize("threads", ["1", "4"])  # all other tests run with as many as the machine has
def test_tokens_do_not_depend_on_the_number_of_threads(threads, tmp_path):
    # In a process of its own, for JAX counts its threads once; the golden model says which tokens.
    code = """
from tritgold.checkpoint import open_checkpoint
from tritgold.golden import embedded_model
from tritgold_xla import XlaEngine
with embedded_model("kjv-ar") as path:
    checkpoint = open_checkpoint(path)
    engine = XlaEngine(checkpoint.config, checkpoint.weights, 64)
made = [engine.greedy([5, 6, 7])]
while len(made) < 12:
    made.append(engine.greedy(made[-1:]))
print(made)
"""
    env = os.environ | {"NPROC": threads, "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}  # a program knows its threads
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    made, text = json.loads(done.stdout), [5, 6, 7]
    with embedded_model("kjv-ar") as path:
        checkpoint = open_checkpoint(path)
        logits = forward(text + made[:-1], checkpoint.weights, checkpoint.config)
    assert made == np.argmax(logits[2:], axis=-1).tolist()
