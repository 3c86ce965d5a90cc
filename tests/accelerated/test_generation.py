"""What one token after the other costs: no program is compiled twice, and there is one KV cache and no copy of it."""

import jax
import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

import tritgold_xla.decode.block_diffusion as decoder
from tritgold_xla import XlaEngine, model
from tritgold_xla.decode.block_diffusion import block_diffusion
from tritgold_xla.decode.diffusion_options import BlockOptions
from tritgold_xla.kv_cache.kv_scheme import SCHEMES

SEQUENCES, CAPACITY = 16, 120


def diffuse(engine, tokens, threshold=0.9):
    block_diffusion(engine, tokens, 9, BlockOptions(causal=True, thresholds=(threshold,), block=8, mask=100))


# Whatever appends to the cache; of up to eight tokens where it takes several.
WAYS = {
    "read": lambda engine, tokens: engine.read(tokens),
    "step": lambda engine, tokens: engine.step(tokens[0]),
    "greedy": lambda engine, tokens: engine.greedy(tokens[:1]),
    "step_all": lambda engine, tokens: engine.step_all([tokens[-1]] * SEQUENCES),
    "run_block": diffuse,
}


@pytest.fixture(scope="module")
def engine():
    """All programs are compiled."""
    made = XlaEngine(LLAMA, make_weights(LLAMA), CAPACITY, sequences=SEQUENCES, screen=True)
    for way in WAYS.values():
        way(made, [1, 2, 3])
    return made


@pytest.fixture
def compiled(caplog):
    """Names what is compiled, or only traced, from here on: also the small programs of single NumPy-like calls."""
    with jax.log_compiles():
        yield lambda: [record.getMessage() for record in caplog.records if "ompil" in record.getMessage()]


def test_what_is_compiled_would_be_seen(compiled):
    assert compiled() == []
    jax.jit(lambda x: 3 * x - 158)(np.float32(1))
    assert compiled()


def test_a_generation_compiles_nothing_anew(engine, compiled):
    engine.reset()
    engine.read([1, 2, 3, 4, 5])
    for token in range(6):
        engine.step(token)
        engine.greedy([token + 1])
    engine.read([7] * 8, sequence=SEQUENCES - 1)
    engine.step_all(list(range(SEQUENCES)))
    engine.step_all(list(range(SEQUENCES, 0, -1)))
    for length, threshold in [(2, 0.0), (7, 0.5), (8, 1.0)]:
        diffuse(engine, [9] * length, threshold)
    engine.reset()
    engine.step(LLAMA.vocab - 1)
    assert compiled() == []


@pytest.mark.parametrize("way", WAYS)
def test_the_cache_is_written_where_it_is(engine, way):
    before = jax.tree.leaves(engine._cache)
    places = [array.unsafe_buffer_pointer() for array in before]
    WAYS[way](engine, [4, 5])
    assert all(array.is_deleted() for array in before), "the old cache is kept"
    assert [array.unsafe_buffer_pointer() for array in jax.tree.leaves(engine._cache)] == places


@pytest.fixture
def used(monkeypatch):
    """What every program needs that runs from here on."""
    found = []

    def measuring(program):
        def run(*arguments, **static):
            found.append(program.lower(*arguments, **static).compile().memory_analysis())
            return program(*arguments, **static)

        return run

    monkeypatch.setattr(model, "forward", measuring(model.forward))
    monkeypatch.setattr(decoder, "fill", measuring(decoder.fill))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_no_program_copies_the_cache(engine, way, used):
    WAYS[way](engine, [4, 5])
    assert_no_copy(engine, used)


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "f32"])
def test_no_scheme_needs_a_copy_of_the_cache(scheme, used):
    # One of float8 was converted whole, at every step, to write a row of it.
    engine = XlaEngine(LLAMA, make_weights(LLAMA), CAPACITY, scheme, sequences=SEQUENCES)
    engine.step(4)
    assert_no_copy(engine, used)


def assert_no_copy(engine, used):
    cache = sum(array.nbytes for array in jax.tree.leaves(engine._cache))
    assert used
    for memory in used:
        assert memory.alias_size_in_bytes == cache, "not given to the program, or not given back"
        assert memory.temp_size_in_bytes < cache / LLAMA.layers / 2, "room for a copy of a layer's keys"
