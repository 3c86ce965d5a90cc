"""One table says what each backend of ``tritgold run`` has: it is what the JAX engine does, and what README says."""

import re
from pathlib import Path
from typing import Any

import pytest
from tritgold_command import call, parsed

from tritgold.errors import ConfigError
from tritgold.options import DECODE, KV_SCHEMES
from tritgold_conformance.commands.backends import SUPPORTED

pytest.importorskip("jax")

from tritgold_xla.decode.diffusion_options import preset
from tritgold_xla.kv_cache.kv_scheme import kv_scheme

XLA = SUPPORTED["xla"]
IN_README = {
    "KV caches f32, f16, bf16, FP8, int8": ("f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"),
    "KV caches Q8_0 to Q4_0, KIVI, rotated, TurboQuant; paged": (
        "fake_fp8", "q8_0", "q5_0", "q4_1", "q4_0", "kivi2", "kivi4", "affine", "hadamard", "turboquant", "a4_8",
        "split",
    ),
    "block diffusion: Fast-dLLM v2, also with its sub-block cache; greedy, iterative, adaptive, small blocks": (
        "fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block",
    ),
    "block diffusion: LLaDA, Dream": ("llada", "dream"),
}  # fmt: skip
README = Path(__file__).parents[3] / "README.md"


def accepted(make: Any, name: str) -> bool:
    try:
        make(name)
    except ConfigError as error:
        return error.kind not in ("unknown-preset", "unknown-kv-scheme")
    return True


def test_the_table_is_what_the_engine_takes() -> None:
    assert XLA["--decode"] == ("ar", *(name for name in DECODE[1:] if accepted(preset, name)))
    assert XLA["--kv-cache"] == tuple(name for name in KV_SCHEMES if accepted(kv_scheme, name))


def test_the_table_is_what_readme_says() -> None:
    said = {
        row: (golden, jax)
        for row, golden, jax in re.findall(r"^\| (.+?) \| (yes|no) \| (yes|no) \|", README.read_text(), re.M)
    }
    assert {name for names in IN_README.values() for name in names} == {*DECODE[1:], *KV_SCHEMES}
    for row, names in IN_README.items():
        for backend, column in zip(("reference", "xla"), said[row], strict=True):
            has = {*SUPPORTED[backend]["--decode"], *SUPPORTED[backend]["--kv-cache"]}
            assert {name in has for name in names} == {column == "yes"}, (row, backend)
    assert said["sparse activations and attention"] == ("yes", "no")
    assert XLA["--sparsity"] == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *((("kjv-dlm", "--decode", way), f"--decode {way}") for way in DECODE if way not in XLA["--decode"]),
        *((("--kv-cache", name), f"--kv-cache {name}") for name in KV_SCHEMES if name not in XLA["--kv-cache"]),
        (("--kv-cache", "bf16:rounding=truncate"), "options of --kv-cache bf16"),
        (("--sparsity", "top_k"), "--sparsity top_k (it has: none)"),
        (("kjv-dlm", "--decode", "iterative", "--defect", "no-commit"), "--defect no-commit"),
        (("kjv-dlm", "--decode", "iterative", "--temperature", 1), "--temperature with --decode iterative"),
        (("--ids", "7", "--chunk", 4), "batch options --chunk (it has: --max-sequences, --no-radix-cache)"),
        (("--ids", "7", "--radix-cache"), "batch options --radix-cache"),
        (("--ids", "7", "--sparsity", "top_k"), "--sparsity top_k (it has: none)"),
    ],
)
def test_what_the_jax_engine_does_not_have_is_a_usage_error(arguments: tuple[object, ...], said: str) -> None:
    result = call("run", *arguments, "--backend", "xla", "--ids", "5,6")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def same(*arguments: object) -> dict[str, Any]:
    """What both backends say, equal but for the backend and the time."""
    ours, theirs = (parsed(call("run", *arguments, "--backend", name, "--json")) for name in SUPPORTED)
    assert (ours.pop("backend"), theirs.pop("backend")) == ("reference", "xla")
    for report in (ours, theirs):
        report.pop("seconds")
    assert theirs | {key: ours[key] for key in ("counters", "serving") if key in ours} == ours
    return theirs


@pytest.mark.parametrize("way", [way for way in XLA["--decode"] if way != "ar"])
def test_block_diffusion_is_the_golden_one_token_for_token(way: str, model: Path) -> None:
    sizes = ("--block-size", 8, "--mask-token-id", 5, *(() if way == "greedy" else ("--threshold", 0.3)))
    report = same(model, "--ids", "1,17,30", "--max-tokens", 11, "--decode", way, *sizes)
    assert len(report["ids"]) == len(report["order"])
    assert sum(report["forwards_per_block"]) == report["forwards"] == len(report["read"])


@pytest.mark.parametrize("scheme", XLA["--kv-cache"])
def test_kv_caches_are_the_golden_ones_token_for_token(scheme: str, model: Path) -> None:
    report = same(model, "--ids", "1,17,30,200", "--max-tokens", 6, "--kv-cache", scheme)
    assert report["kv_cache"]["scheme"] == scheme


def test_several_prompts_are_the_golden_ones_token_for_token(model: Path) -> None:
    prompts = ("--ids", "0,114,26,204", "--ids", "0,5,200,12,114,26", "--ids", "0,7,9")
    # Drawn from few: a broken rounding tie moves logits by a percent, and so the order of unlikely tokens.
    for more in ((), ("--max-sequences", 2, "--no-radix-cache", "--temperature", 1, "--top-k", 3, "--seed", 3)):
        report = same(model, *prompts, "--max-tokens", 5, *more)
        assert [len(text["ids"]) for text in report["texts"]] == [5, 5, 5]


def test_a_prompt_that_cannot_be_read_is_refused_before_programs_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritgold_conformance.engines.xla.open_engine", None)
    for more in (("kjv-ar",), ("kjv-dlm",), ("kjv-ar", "--ids", "0,5")):
        result = call("run", *more, "--ids", "1,99999", "--backend", "xla", "--json")
        assert (result.exit_code, parsed(result)["kind"]) == (3, "token-id")
