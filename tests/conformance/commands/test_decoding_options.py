"""How ``tritgold run`` decodes: every option is used and said, and what cannot be is refused before any compute."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.autoregressive import generate, reference_logits
from tritgold.decode.diffusion_options import Defect
from tritgold.decode.sampling import Sampling
from tritgold.decode.server_defects import ServerDefect
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold.options import KV_SCHEMES
from tritgold.sparsity.base import Tally
from tritgold.sparsity.rules import SPARSITY_RULES, sparsity_rule
from tritgold_conformance.cli import main
from tritgold_conformance.commands.backends import SUPPORTED
from tritgold_conformance.commands.decoding_options import BACKENDS, DEFECTS, RULES, SERVER_DEFECTS
from tritgold_conformance.commands.options import Named

PROMPT = ("--ids", "0,1144,262,2042")  # <bos> In the beginning


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments), "--json"])


def parsed(*arguments: object) -> dict[str, Any]:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a pass was computed")

    for module in ("tritgold.decode.autoregressive", "tritgold.decode.block_model"):
        monkeypatch.setattr(f"{module}.forward", computed)


def by_hand(tokens: int, sampling: Sampling, scheme: str, rule: str, **options: Any) -> tuple[list[int], Tally]:
    opened, tally = open_checkpoint(trained_model("kjv-ar")), Tally()
    cache = kv_scheme(scheme).cache(opened.config, 64)
    arithmetic = sparsity_rule(rule, **options).arithmetic(tally=tally)
    logits = reference_logits(opened.weights, opened.config, 64, cache, arithmetic)
    steps = generate([0, 1144, 262, 2042], opened.config, logits, tokens, sampling)
    return [step.token for step in steps], tally


def test_a_token_a_pass_with_everything() -> None:
    expected, tally = by_hand(9, Sampling(1.5, 50, 0.9, 1.2, 7), "q4_0", "top_k", keep=0.3)
    sampling = ("--temperature", 1.5, "--top-k", 50, "--top-p", 0.9, "--repetition-penalty", 1.2, "--seed", 7)
    given = ("kjv-ar", *PROMPT, "--max-tokens", 9)
    found = parsed(*given, *sampling, "--kv-cache", "q4_0", "--sparsity", "top_k:keep=0.3")
    assert found["ids"] == expected
    assert found["sampling"] == {
        "temperature": 1.5, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 7, "text_ids": 0
    }  # fmt: skip
    # 6 layers, 2 heads of 64, keys and values, 18 bytes for 32.
    assert found["kv_cache"] == {"scheme": "q4_0", "bits_per_value": 4.5, "bytes_per_token": 6 * 2 * 2 * 64 // 32 * 18}
    assert found["sparsity"]["rules"] == [{"rule": "top_k", "keep": 0.3}]
    assert found["sparsity"]["measured"] == {
        place: pytest.approx(tally.sparsity(place), abs=1e-6) for place in tally.of
    }
    assert 0.69 < found["sparsity"]["measured"]["attn_in"] < 0.71
    plain = parsed(*given)
    assert (plain["sampling"], plain["sparsity"], plain["kv_cache"]["scheme"]) == (None, None, "f32")
    for option in (("--kv-cache", "turboquant:bits=2"), ("--sparsity", "top_k:keep=0.1"), sampling):
        assert parsed(*given, *option)["ids"] != plain["ids"], option


@pytest.mark.parametrize("option", [("--seed", 8), ("--top-k", 1), ("--top-p", 0.0), ("--repetition-penalty", 50)])
def test_each_option_of_sampling_is_used(option: tuple[object, ...]) -> None:
    given = ("kjv-ar", *PROMPT, "--max-tokens", 12, "--temperature", 1)
    assert (
        parsed(*given, "--seed", 7)["ids"]
        != parsed(*given, *(() if "--seed" in option else ("--seed", 7)), *option)["ids"]
    )


def test_block_diffusion_with_everything() -> None:
    given = ("kjv-dlm", *PROMPT, "--max-tokens", 12, "--block-size", 8, "--sub-block-size", 4, "--threshold", 0.2)
    plain = parsed(*given)
    assert (plain["block_size"], plain["sub_block_size"], plain["threshold"]) == (8, 4, 0.2)
    with_cache = parsed(*given, "--kv-cache", "turboquant:bits=2")
    assert with_cache["kv_cache"]["scheme"] == "turboquant-bits-2"
    assert (with_cache["ids"], with_cache["order"]) != (plain["ids"], plain["order"])
    rules = ("--sparsity", "zero_skipping", "--sparsity", "attention_top_k:k=2", "--sparsity", "threshold:threshold=1")
    sparse = parsed(*given, *rules)
    assert sparse["sparsity"]["measured"].keys() == {"attn_in", "o_in", "ffn_in", "down_in", "probs", "products"}
    assert sparse["sparsity"]["measured"]["probs"] > 0.5
    assert sparse["ids"] != plain["ids"]
    drawn = parsed(*given, "--temperature", 3, "--seed", 5)
    assert drawn["sampling"]["temperature"] == 3
    assert drawn["ids"] != plain["ids"]
    assert drawn["ids"] == parsed(*given, "--temperature", 3, "--seed", 5)["ids"]


def test_exact_schemes_and_rules_change_no_token() -> None:
    for model in ("kjv-ar", "kjv-dlm"):
        given = (model, *PROMPT, "--max-tokens", 4)
        exact = parsed(*given, "--kv-cache", "f32", "--sparsity", "none", "--sparsity", "zero_skipping")
        assert exact["ids"] == parsed(*given)["ids"]


def test_passes_can_be_limited_and_defects_switched_on() -> None:
    given = ("kjv-dlm", *PROMPT, "--max-tokens", 30, "--decode", "iterative", "--block-size", 8)
    few, many = (parsed(*given, "--max-passes", passes)["forwards_per_block"] for passes in (2, 8))
    assert set(few) == {2}
    assert max(many) > 2
    wrong = parsed(*given, "--max-passes", 2, "--defect", "whole-blocks", "--defect", "no-commit")
    assert wrong["defects"] == ["no-commit", "whole-blocks"]
    assert len(wrong["ids"]) == 1 + 4 * 8, "D4: one token of the prefill and whole blocks"


def test_a_stuck_engine_is_shown_as_one() -> None:
    """D6 reads two blocks of the prompt and waits for ever."""
    prompt = ("--ids", ",".join(["0", *["5"] * 40]))
    found = parsed("kjv-dlm", *prompt, "--decode", "iterative", "--block-size", 8, "--defect", "short-prompt")
    assert (found["ids"], found["reason"], found["forwards"]) == ([], "stuck", 0)


def test_names_of_the_help_are_those_of_the_registries() -> None:
    assert tuple(Defect) == DEFECTS
    assert tuple(ServerDefect) == SERVER_DEFECTS
    assert tuple(SCHEMES) == KV_SCHEMES
    assert tuple(SPARSITY_RULES) == RULES
    assert tuple(SUPPORTED) == BACKENDS


def test_help_does_not_wait_for_what_decodes() -> None:
    """Names alone: ``run`` imports the decoders when something is to run."""
    code = "import sys, tritgold_conformance.commands.run; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "tritgold.checkpoint" in loaded, "a control"
    assert not {"tritgold.decode.sampling", "tritgold.sparsity.rules", "yaml", "jax"} & loaded


def test_a_limit_of_passes_where_the_sub_block_is_the_block() -> None:
    given = ("kjv-dlm", *PROMPT, "--max-tokens", 6, "--block-size", 8, "--sub-block-size", 8, "--max-passes", 2)
    assert max(parsed(*given)["forwards_per_block"]) == 3, "two, and the one that keeps the block"


def test_what_was_used_is_said_on_stderr() -> None:
    arguments = ["run", *PROMPT, "--max-tokens", "2", "--kv-cache", "kivi2:window=32", "--sparsity", "none"]
    told = CliRunner().invoke(main, arguments).stderr
    assert "[KV cache kivi2-window-32: 3 bits a value, 576 bytes a token]" in told
    assert "[measured sparsity: attn_in " in told


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        # the context, 1,024 positions
        (("kjv-ar", "--ids", "5," * 1025), "context-length"),
        (("kjv-dlm", "--ids", "5," * 1025), "context-length"),
        (("kjv-dlm", "--ids", "5," * 1000, "--block-size", 600), "context-length"),
        (("kjv-dlm", "--ids", "5," * 1000, "--decode", "llada"), "context-length"),
        # blocks
        (("kjv-dlm", *PROMPT, "--block-size", 32, "--sub-block-size", 5), "sub-block"),
        (("kjv-dlm", *PROMPT, "--block-size", 12), "sub-block"),
        (("kjv-dlm", *PROMPT, "--decode", "iterative", "--block-size", 1025), "block"),
        (("kjv-dlm", *PROMPT, "--decode", "small-block", "--block-size", 80_000_000_000), "block"),
        # the mask
        (("kjv-ar", *PROMPT, "--decode", "greedy"), "no-diffusion"),
        (("kjv-ar", *PROMPT, "--decode", "greedy", "--block-size", 8), "no-diffusion"),
        (("kjv-ar", *PROMPT, "--decode", "greedy", "--mask-token-id", 3), "no-diffusion"),
        (("kjv-ar", *PROMPT, "--decode", "greedy", "--block-size", 8, "--mask-token-id", 2048), "mask-id"),
        (("kjv-ar", *PROMPT, "--decode", "greedy", "--block-size", 8, "--mask-token-id", 1), "mask-id"),
        (("kjv-dlm", *PROMPT, "--mask-token-id", 4), "mask-id"),
        (("kjv-dlm", "--ids", "0,3,5"), "mask-in-prompt"),
        # options that contradict each other
        (("kjv-dlm", *PROMPT, "--defect", "no-commit"), "diffusion-option"),
        (("kjv-dlm", *PROMPT, "--decode", "llada", "--temperature", 1, "--top-k", 5), "diffusion-option"),
        (("kjv-dlm", *PROMPT, "--temperature", 1, "--repetition-penalty", 1.2), "diffusion-option"),
        (("kjv-dlm", *PROMPT, "--decode", "iterative", "--repetition-penalty", 50), "diffusion-option"),
        (("kjv-dlm", *PROMPT, "--kv-cache", "kivi2"), "kv-in-place"),
        (("kjv-dlm", *PROMPT, "--kv-cache", "fake_fp8"), "kv-in-place"),
        (("kjv-ar", *PROMPT, "--sparsity", "top_k", "--sparsity", "a4_8"), "sparsity-conflict"),
        (("kjv-ar", *PROMPT, "--sparsity", "attention_top_k", "--sparsity", "attention_window"), "sparsity-conflict"),
        (("kjv-ar", *PROMPT, "--sparsity", "attention_top_k:k=3,keep=0.5"), "sparsity-option"),
        # names, options and their values
        (("kjv-ar", *PROMPT, "--kv-cache", "q8"), "unknown-kv-scheme"),
        (("kjv-ar", *PROMPT, "--kv-cache", "q8_0:bits=4"), "kv-option"),
        (("kjv-ar", *PROMPT, "--kv-cache", "kivi2:window=100"), "kv-option"),
        (("kjv-ar", *PROMPT, "--kv-cache", "fp8_e4m3:k_scale=x"), "kv-option"),
        (("kjv-ar", *PROMPT, "--kv-cache", "affine:symmetric=maybe"), "kv-option"),
        (("kjv-ar", *PROMPT, "--kv-cache", "turboquant:seed=abc"), "kv-option"),
        (("kjv-ar", *PROMPT, "--kv-cache", "kivi2:window=128.0"), "kv-option"),
        (("kjv-ar", *PROMPT, "--sparsity", "top_k:keep=true"), "sparsity-option"),
        (("kjv-ar", "--prompt", "\udcff"), "text"),
        (("kjv-ar", *PROMPT, "--kv-cache", "kivi2:group=128"), "kv-shape"),
        (("kjv-ar", *PROMPT, "--sparsity", "topk"), "unknown-sparsity"),
        (("kjv-ar", *PROMPT, "--sparsity", "top_k:k=3"), "sparsity-option"),
        (("kjv-ar", *PROMPT, "--sparsity", "top_k:keep=1.5"), "sparsity-option"),
        (("kjv-ar", *PROMPT, "--sparsity", "q_sparse:rescale=maybe"), "sparsity-option"),
    ],
)
def test_bad_input_is_refused_before_any_compute(arguments: tuple[object, ...], kind: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 3, result.output
    assert json.loads(result.stdout)["kind"] == kind


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kjv-dlm", "--threshold", 1.01), "0<=x<=1"),
        (("kjv-dlm", "--threshold", -0.01), "0<=x<=1"),
        (("kjv-dlm", "--threshold", "nan"), "nan is not in the range 0<=x<=1"),
        (("kjv-ar", "--temperature", "nan"), "nan is not in the range x>=0"),
        (("kjv-ar", "--temperature", "inf"), "inf is not in the range x>=0"),
        (("kjv-ar", "--temperature", -1), "x>=0"),
        (("kjv-ar", "--top-k", -1), "0<=x<="),
        (("kjv-ar", "--top-p", 1.1), "0<=x<=1"),
        (("kjv-ar", "--repetition-penalty", 0), "x>0"),
        (("kjv-ar", "--seed", -1), "0<=x<="),
        (("kjv-dlm", "--max-tokens", 0), "x>=1"),
        (
            ("kjv-ar", "--top-k", 5, "--top-p", 0.3, "--seed", 9),
            "--top-k, --top-p, --seed: nothing is drawn at --temperature 0",
        ),
        (("kjv-dlm", "--top-k", 5), "--top-k: nothing is drawn at --temperature 0"),
        (("kjv-ar", "--kv-cache", "q8_0", "--kv-cache", "f16"), "--kv-cache is given 2 times"),
        (
            ("kjv-dlm", "--decode", "iterative", "--sub-block-size", 8),
            "--decode with sub-blocks: fast-dllm-v2, fast-dllm-v2-dual",
        ),
        (("kjv-dlm", "--max-passes", 5), "except with --sub-block-size 32; --decode with one: iterative, adaptive"),
        (("kjv-dlm", "--decode", "small-block", "--max-passes", 5), "--max-passes: small-block has no limit"),
        (("kjv-dlm", "--decode", "gready"), "'fast-dllm-v2', 'fast-dllm-v2-dual', 'greedy', 'iterative'"),
        (("kjv-dlm", "--defect", "d1"), "'no-commit', 'stale-prefix'"),
        (
            ("kjv-ar", "--mask-token-id", 3, "--max-passes", 4),
            "--mask-token-id, --max-passes: only for block diffusion",
        ),
        (("kjv-dlm", "--decode", "ar", "--defect", "no-commit"), "--defect no-commit: only for block diffusion"),
        (
            ("kjv-dlm", "--defect", "chunk-tokens"),
            "--defect chunk-tokens: a defect of servers that decode one token per pass",
        ),
        (("kjv-dlm", "--decode", "greedy", "--max-passes", 3), "--max-passes: greedy decides a block in one pass"),
        (("kjv-ar", "--kv-cache", "kivi2:window"), "'window' in 'kivi2:window' is not OPTION=VALUE"),
        (("kjv-ar", "--kv-cache", "kivi2:window=32,window=64"), "'window' is given twice"),
        (("kjv-ar", "--kv-cache", "kivi2:"), "is not OPTION=VALUE"),
        (
            ("kjv-ar", "--kv-cache", "q8_0", "--backend", "xla"),
            "--backend xla does not have --kv-cache q8_0 (it has: f32",
        ),
        (
            ("kjv-ar", "--sparsity", "top_k", "--backend", "xla"),
            "--backend xla does not have --sparsity top_k (it has: none)",
        ),
        (
            ("kjv-dlm", "--backend", "xla", "--decode", "llada"),
            "does not have --decode llada (it has: ar, fast-dllm-v2, fast-dllm-v2-dual,",
        ),
        (("kjv-ar", "--config", "absent.yaml"), "absent.yaml"),
    ],
)
def test_bad_usage_says_what_is_wrong(arguments: tuple[object, ...], said: str) -> None:
    result = call(*arguments, *PROMPT)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_the_jax_engine_samples_too() -> None:
    given = ("kjv-ar", *PROMPT, "--max-tokens", 5, "--temperature", 0.7, "--top-k", 20, "--seed", 3)
    found = parsed(*given, "--backend", "xla")
    assert found["ids"] == parsed(*given)["ids"]
    assert (found["kv_cache"]["scheme"], found["sparsity"]) == ("f32", None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dlm.yaml"


def test_given_here_counts_for_more_than_the_file_and_the_file_for_more_than_defaults(file: Path) -> None:
    file.write_text("dlm: {decode_mode: iter, threshold: 0.25, block_size: 16, max_iterations_per_block: 3}")
    given = ("--config", file, *PROMPT, "--max-tokens", 8)
    read = parsed(*given)
    assert (read["model"], read["decode"], read["threshold"]) == ("kjv-dlm", "iterative", 0.25)
    assert (read["block_size"], read["max_passes"]) == (16, 3)
    here = parsed(*given, "--threshold", 0.5, "--max-passes", 2, "--block-size", 8)
    assert (here["threshold"], here["max_passes"], here["block_size"]) == (0.5, 2, 8)
    other = parsed(*given, "--decode", "fast-dllm-v2")
    assert (other["decode"], other["sub_block_size"], other["max_passes"]) == ("fast-dllm-v2", 8, None)
    file.write_text("")
    default = parsed(*given)
    assert (default["decode"], default["block_size"], default["threshold"]) == ("greedy", 32, None)
    assert parsed(*given, "--decode", "adaptive")["threshold"] == 0.7, "the server's, not ours"
    assert parsed("kjv-dlm", *given[2:])["threshold"] == 0.9, "without a file"


def test_a_model_given_here_the_file_s_the_environment_s_the_default(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    write_seeded_model(folder, Shape(hidden=64, inter=96, layers=1, heads=2, kv_heads=1, context=32))
    given = ("--config", file, "--ids", "1,5", "--max-tokens", 1, "--decode", "ar")
    file.write_text("")
    assert parsed(*given)["model"] == "kjv-dlm"
    monkeypatch.setenv("MODEL_PATH", str(folder))
    assert parsed(*given)["model"] == str(folder)
    file.write_text("model_path: kjv-ar")
    assert parsed(*given)["model"] == "kjv-ar"
    assert parsed("seeded", *given)["model"] == "seeded"
    assert parsed(*given[2:])["model"] == "kjv-ar", "the variable is the server's: without a file it is nobody's"


def test_a_mask_other_than_the_model_s_is_an_error(file: Path, nothing_computed: None) -> None:
    file.write_text("dlm: {mask_token_id: 0}")
    result = call("--config", file, *PROMPT)
    assert (result.exit_code, json.loads(result.stdout)["kind"]) == (3, "mask-id")
    assert json.loads(result.stdout)["file"] == str(file)
    assert json.loads(call("kjv-dlm", *PROMPT, "--mask-token-id", 0).stdout)["file"] is None


def test_the_example_can_be_used_and_keys_for_serving_are_named(file: Path) -> None:
    printed = CliRunner().invoke(main, ["run", "--generate-config", "--threshold", "0.5"])
    assert printed.exit_code == 0
    file.write_text(printed.stdout)
    found = parsed("--config", file, *PROMPT, "--max-tokens", 2)
    idle = ["dlm.threshold", "dlm.small_block_size", "dlm.max_iterations_per_block"]
    assert found["config_unused"][:6] == [*idle, "host", "port", "scheduler.max_sequences"]
    told = CliRunner().invoke(main, ["run", "--config", str(file), *PROMPT, "--max-tokens", "2"]).stderr
    assert f"[keys of the configuration that are not used here: {', '.join(idle)}, host, port, " in told


def test_keys_that_the_way_does_not_use_are_named(file: Path) -> None:
    file.write_text("dlm: {decode_mode: greedy, threshold: 0.3, block_size: 16}")
    assert parsed("--config", file, *PROMPT, "--max-tokens", 2)["config_unused"] == ["dlm.threshold"]
    other = parsed("--config", file, *PROMPT, "--max-tokens", 2, "--decode", "small-block")
    assert (other["threshold"], other["config_unused"]) == (0.3, [])


def test_where_the_file_says_no_block_size_the_model_does(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "blocks-of-16"
    shutil.copytree(trained_model("kjv-dlm"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "bd_size": 16}))
    file.write_text("dlm: {threshold: 0.5}")
    assert parsed(folder, "--config", file, *PROMPT, "--max-tokens", 2)["block_size"] == 16
    file.write_text("dlm: {block_size: 8}")
    assert parsed(folder, "--config", file, *PROMPT, "--max-tokens", 2)["block_size"] == 8


def test_bad_files_are_typed_errors(file: Path, nothing_computed: None) -> None:
    for text, kind in (
        ("dlm: {x: 1}", "config-unknown-key"),
        ("port: 1\nport: 2", "config-duplicate"),
        ("[", "config-file"),
    ):
        file.write_text(text)
        result = call("--config", file, *PROMPT)
        assert (result.exit_code, json.loads(result.stdout)["kind"]) == (3, kind)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("f32", ("f32", {})),
        ("kivi2:group=32,window=64", ("kivi2", {"group": 32, "window": 64})),
        ("top_k: keep = 0.5", ("top_k", {"keep": 0.5})),
        ("split:k=q8_0,v=f16", ("split", {"k": "q8_0", "v": "f16"})),
        ("adaptive:drops_feature_0=true", ("adaptive", {"drops_feature_0": True})),
        ("attention_window:stride=none,window=8", ("attention_window", {"stride": None, "window": 8})),
        ("a:b=c=d", ("a", {"b": "c=d"})),
    ],
)
def test_names_with_options(text: str, chosen: tuple[str, dict[str, object]]) -> None:
    found = Named().convert(text, None, None)
    assert found == chosen
    assert [type(v) for v in found[1].values()] == [type(v) for v in chosen[1].values()]
