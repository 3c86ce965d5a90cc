"""The mode ``llama-cpp-q8_k`` and the graph, against llama.cpp itself (through xllamacpp).

The first part judges what was recorded; the second runs llama.cpp here and now, where TRITGOLD_PEERS_PYTHON names a
Python that has it (``make peers`` makes one). What llama.cpp runs as ``bitnet`` has SiLU; its squared ReLU is judged by
``test_pytritium.py``.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_files import write_engine_file, write_unpermuted_file
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from light_cases import (
    CASES,
    FLOOR,
    FURTHER,
    NEW_TOKENS,
    RECORDED,
    Case,
    RefusedError,
    arithmetic_of,
    continuation,
    further_model,
    judge,
    kjv_ar,
    llama_cpp,
    log_probabilities,
    model_of,
    tokens_of,
    unquantized,
    with_silu,
)
from q8_k_cases import activations, trits
from safetensors.numpy import load_file
from small_models import interleave

from tritgold.checkpoint import Checkpoint
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Q8_K_ARITHMETIC, Arithmetic
from tritgold.layers.q8_k import accumulate_blocks, apply_block_scales, quantize_q8_k
from tritgold.model import forward
from tritgold.ternary import InMemoryTernary, LinearWeight, TernaryTensor
from tritgold_conformance.comparing.logits import LOGIT_NOISE, LogitsVerdict

HERE = Path(__file__).parent
FRESH = 777  # added to the seeds of the live judgement
PYTHON = os.environ.get("TRITGOLD_PEERS_PYTHON", "")
live = pytest.mark.skipif(not PYTHON, reason="llama.cpp runs only where TRITGOLD_PEERS_PYTHON names its python")

TERNARY = [case for case in CASES if case.weights != "F32"]
# In the beginning God created the heaven ... as kjv-ar's tokenizer has it, and what it writes on.
GENESIS = [0, 1144, 262, 2042, 390, 283, 556, 286, 262, 345, 15, 271, 262, 985, 272, 262]


def failing(verdict: LogitsVerdict) -> int:
    return sum(not position.passed for position in verdict.positions)


def off(verdict: LogitsVerdict) -> list[int]:
    """Positions that need a tie as explanation."""
    return [p.position for p in verdict.positions if p.relative > LOGIT_NOISE]


def assert_agrees(verdict: LogitsVerdict) -> None:
    """The search is strict: an explanation by ties holds to the noise of float32."""
    assert verdict.passed, verdict.problem
    assert verdict.allowed is None
    # Measured over 52 models and 864 positions: at most 4.2e-7 after the ties.
    assert max(position.explained for position in verdict.positions) < LOGIT_NOISE / 10


# ---- recorded ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Checkpoint]:
    made: dict[Case, Checkpoint] = {}

    def model(case: Case) -> Checkpoint:
        if case not in made:
            made[case] = model_of(case, tmp_path_factory.mktemp(case.name))
        return made[case]

    return model


Models = Callable[[Case], Checkpoint]


def recording(case: Case) -> dict[str, np.ndarray]:
    return load_file(RECORDED / f"{case.name}.safetensors")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_log_probability_agrees(case: Case, models: Models) -> None:
    verdict = judge(models(case), recording(case), arithmetic_of(case.weights))
    assert_agrees(verdict)
    assert len(verdict.positions) == 16
    for position in verdict.positions:
        if position.relative <= LOGIT_NOISE:
            assert position.argmax[0] == position.argmax[1]
            assert position.top_k == {1: 1.0, 5: 1.0, 10: 1.0}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_it_writes_on_alike(case: Case, models: Models) -> None:
    """Not bound to hold where a code is at a tie, and true of these seeds."""
    peer = recording(case)
    ours = continuation(models(case), peer["tokens"].tolist(), arithmetic_of(case.weights))
    assert len(ours) == NEW_TOKENS
    assert ours == peer["generated"].tolist()


def test_both_families_meet_a_tie_and_have_models_without_one(models: Models) -> None:
    tied = {case: bool(off(judge(models(case), recording(case), Q8_K_ARITHMETIC))) for case in TERNARY}
    assert {(case.architecture, found) for case, found in tied.items()} == {
        (architecture, found) for architecture in ("bitnet", "llama") for found in (False, True)
    }


@pytest.mark.parametrize("case", TERNARY, ids=lambda c: c.name)
def test_the_golden_scale_of_a_token_is_told_apart(case: Case, models: Models) -> None:
    """The difference of the two modes is what the mode is for; no broken ties explain it."""
    verdict = judge(models(case), recording(case), GOLDEN_ARITHMETIC)
    assert failing(verdict) == len(verdict.positions)
    assert np.median([position.max_abs for position in verdict.positions]) > 0.05


@pytest.mark.parametrize("case", [c for c in CASES if c.architecture == "bitnet"], ids=lambda c: c.name)
def test_squared_relu_is_told_apart(case: Case, models: Models) -> None:
    model = models(case)
    wrong = replace(model, config=replace(model.config, activation="relu2"))
    verdict = judge(wrong, recording(case), arithmetic_of(case.weights))
    assert failing(verdict) == len(verdict.positions)


@pytest.mark.parametrize("case", [c for c in CASES if c.architecture == "llama"], ids=lambda c: c.name)
def test_q_and_k_in_the_file_s_order_are_told_apart(case: Case, models: Models) -> None:
    """At position 0 RoPE turns nothing, and a permutation of q and k alike changes no score."""
    verdict = judge(interleaved(models(case)), recording(case), arithmetic_of(case.weights))
    assert failing(verdict) >= len(verdict.positions) - 1
    assert verdict.positions[0].passed


def interleaved(model: Checkpoint) -> Checkpoint:
    """A reader that leaves q and k as arch ``llama`` stores them."""
    config, weights = model.config, model.weights

    def turned(weight: LinearWeight, heads: int) -> LinearWeight:
        tensor = weight.ternary()
        return InMemoryTernary(TernaryTensor(interleave(tensor.trits, heads), tensor.scale))

    layers = [replace(w, q=turned(w.q, config.heads), k=turned(w.k, config.kv_heads)) for w in weights.layers]
    return replace(model, weights=replace(weights, layers=tuple(layers)))


def test_a_tie_can_be_broken_the_wrong_way_only_where_there_is_one(models: Models) -> None:
    """A peer with one code off by one somewhere else is not explained."""
    case = CASES[1]
    quantized = 0

    def spoilt(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal quantized
        codes, scale = quantize_q8_k(x)
        quantized += 1
        if quantized == 4:  # the input of down in the first layer
            codes[5, 100] += 1
        return codes, scale

    model, peer = models(case), recording(case)
    arithmetic = replace(Q8_K_ARITHMETIC, quantize=spoilt, logits=log_probabilities)
    logprobs = forward(peer["tokens"].tolist(), model.weights, model.config, arithmetic=arithmetic)
    verdict = judge(model, {**peer, "logprobs": logprobs}, Q8_K_ARITHMETIC)
    assert verdict.problem.startswith("11 of 16 positions, first 5: ")


# ---- live --------------------------------------------------------------------------------------------------------


@live
@pytest.mark.parametrize("kind", ["TQ1_0", "TQ2_0"])
def test_codes_scales_and_dot_products_are_ggml_s_own(kind: str, tmp_path: Path) -> None:
    """Codes and scales bit for bit; sums within float32, for the kernels go through lanes or fused operations."""
    x, weight, w = activations().reshape(3, 768), trits(20, 768), np.float32(0.1875)
    packed = quantize(weight * w, GGMLQuantizationType[kind])
    np.savez(tmp_path / "in.npz", x=x, weights=packed, kind=kind.lower())
    command = [PYTHON, str(HERE / "llama_cpp_blocks.py"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as peer:
        codes, scale = quantize_q8_k(x)
        assert np.array_equal(codes, peer["codes"])
        assert np.array_equal(scale, peer["scales"])
        acc = accumulate_blocks(codes, weight)
        ours = apply_block_scales(acc, scale, np.asarray(w), "multiply")
        terms = np.abs(codes.reshape(3, 1, 3, 256).astype(np.float64)).sum(axis=3) * np.abs(scale)[:, None] * w
        for kernel in ("out", "generic"):
            assert (np.abs(ours - peer[kernel]) <= 1e-6 * terms.sum(axis=2)).all(), kernel


@live
@pytest.mark.parametrize("case", [replace(c, seed=c.seed + FRESH) for c in CASES], ids=lambda c: c.name)
def test_agrees_on_a_fresh_seed(case: Case, models: Models, tmp_path: Path) -> None:
    peer = run(models(case), case.architecture, case.weights, tokens_of(case), tmp_path)
    assert_agrees(judge(models(case), peer, arithmetic_of(case.weights)))


@live
@pytest.mark.parametrize("case", FURTHER, ids=lambda c: c.name)
def test_further_architectures_agree(case: Case, tmp_path: Path) -> None:
    """Each with its own parts, written by tritgold's converter and read by llama.cpp's own graph of that name."""
    model = further_model(case, tmp_path)
    peer = run(model, case.architecture, case.weights, tokens_of(case), tmp_path)
    assert_agrees(judge(model, peer, Q8_K_ARITHMETIC))


@live
@pytest.mark.parametrize("weights", ["F32", "TQ2_0"])
def test_the_embedded_model_agrees(weights: str, tmp_path: Path) -> None:
    model = with_silu(kjv_ar())
    peer = run(model, "bitnet", weights, GENESIS, tmp_path)
    assert_agrees(judge(model, peer, arithmetic_of(weights)))
    assert continuation(model, GENESIS, arithmetic_of(weights)) == peer["generated"].tolist()


@live
def test_tq1_0_is_tq2_0_bit_for_bit(tmp_path: Path) -> None:
    first, second = (run(with_silu(kjv_ar()), "bitnet", kind, GENESIS, tmp_path) for kind in ("TQ1_0", "TQ2_0"))
    assert np.array_equal(first["logprobs"], second["logprobs"])
    assert first["generated"].tolist() == second["generated"].tolist()


@live
def test_f16_weights_round_activations_to_f16(tmp_path: Path) -> None:
    """Position 0 shows it. After it roundings to float16 flip by the hundred, and move log-probabilities by 1e-3."""
    model = with_silu(kjv_ar())
    peer = run(model, "bitnet", "F16", GENESIS, tmp_path)

    def difference(arithmetic: Arithmetic) -> np.ndarray:
        ours = forward(GENESIS, model.weights, model.config, arithmetic=replace(arithmetic, logits=log_probabilities))
        return np.abs(ours - np.maximum(peer["logprobs"], FLOOR)).max(axis=1)

    rounded, kept = difference(unquantized(np.float16)), difference(unquantized(np.float32))
    assert rounded[0] < 2e-5 < 1e-3 < kept[0]
    assert rounded.max() < 5e-3


@live
def test_wrong_files_are_told_apart(models: Models, tmp_path: Path) -> None:
    """The same controls from the other side: the right model, and a file that a wrong converter wrote."""
    case = CASES[-2]
    assert case.architecture == "llama"
    peer = llama_cpp(PYTHON, write_unpermuted_file(tmp_path / "m.gguf", models(case)), tokens_of(case))
    assert failing(judge(models(case), peer, Q8_K_ARITHMETIC)) >= 15
    peer = run(kjv_ar(), "bitnet", "TQ2_0", GENESIS, tmp_path)
    assert failing(judge(kjv_ar(), peer, Q8_K_ARITHMETIC)) == 16, "as bitnet it runs SiLU, which kjv-ar has not"


@live
@pytest.mark.parametrize(
    ("architecture", "weights"), [("bitnet-b1.58", "TQ2_0"), ("bitnet-25", "F32"), ("bitnet", "I2_S")]
)
def test_what_llama_cpp_refuses(architecture: str, weights: str, tmp_path: Path) -> None:
    """So a converter for it writes arch ``bitnet`` or ``llama`` and one of the types above."""
    with pytest.raises(RefusedError):
        run(kjv_ar(), architecture, weights, GENESIS, tmp_path)


def run(model: Checkpoint, architecture: str, weights: str, ids: list[int], folder: Path) -> dict[str, np.ndarray]:
    file = write_engine_file(folder / f"{weights}.gguf", model, architecture, weights)
    return llama_cpp(PYTHON, file, ids)
