"""Every remedy that names an option is followed: the refused command again, with the option, ends well.

A new hint with ``--`` in it fails here until it has a case.
"""

import ast
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from click.testing import CliRunner
from small_models import WIDE, Entry, HfModel, as_gguf, bf16_entry, llama_like, seeded

import tritgold
from tritgold.checkpoint import open_checkpoint
from tritgold.convert import Options, convert
from tritgold_conformance.cli import main

SOURCE = Path(tritgold.__file__).parent
LAYER = "model.layers.0."
LLAMA_3_1 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@dataclass(frozen=True)
class Case:
    """hint: how it begins. words: makes what the refused command reads, and gives its words without an output.
    follows: for each option of the hint, what stands after it, ``{}`` being the folder. together: all at once.
    """

    hint: str
    words: Callable[[Path], list[object]]
    follows: dict[str, list[str]]
    together: bool = False
    writes: bool = field(default=True)


def to(target: str, make: Callable[[Path], HfModel]) -> Callable[[Path], list[object]]:
    """The words of a conversion of this model."""
    return lambda folder: ["convert", make(folder).write(folder / "m"), "--to", target]


def wide(folder: Path) -> HfModel:
    return seeded(folder, WIDE)


def untied(folder: Path) -> HfModel:
    model = seeded(folder, WIDE)
    model.config["tie_word_embeddings"] = False
    model.entries["lm_head.weight"] = bf16_entry(model.floats("model.embed_tokens.weight")[::-1])
    return model


def unhalved(folder: Path) -> HfModel:
    """Scales whose reciprocals float16 cannot hold."""
    model = llama_like(folder, WIDE)
    for name in model.entries:
        if name.endswith("weight_scale"):
            model.entries[name] = bf16_entry(np.array([3.0], np.float32))
    return model


def by_rows(scales: tuple[float, float]) -> Callable[[Path], HfModel]:
    """Unpacked trits, the rows of each matrix times one scale or another."""

    def make(folder: Path) -> HfModel:
        model = llama_like(folder, WIDE)
        opened = open_checkpoint(model.write(folder / "packed"))
        for name, weight in opened.weights.linears():
            what = name.rpartition(".")[2]
            stored = f"{LAYER}{'mlp' if len(what) > 1 else 'self_attn'}.{what}_proj.weight"
            trits = weight.ternary().trits
            dense = trits * np.resize(np.float32(scales), (len(trits), 1))
            model.entries[stored] = Entry("F32", dense.shape, dense.astype("<f4").tobytes())
            del model.entries[f"{stored}_scale"]
        del model.config["quantization_config"]
        return model

    return make


def qwen(name: str, **config: object) -> Callable[[Path], HfModel]:
    """A Qwen2 with biases or a Qwen3 with norms of heads."""

    def make(folder: Path) -> HfModel:
        model = llama_like(folder, WIDE)
        model.config |= {"architectures": [f"{name}ForCausalLM"], "model_type": name.lower(), **config}
        parts = {"q_norm.weight": 64, "k_norm.weight": 64}
        if name == "Qwen2":
            parts = {"q_proj.bias": 256, "k_proj.bias": 128, "v_proj.bias": 128}
        for part, width in parts.items():
            model.entries[f"{LAYER}self_attn.{part}"] = bf16_entry(np.ones(width, np.float32))
        return model

    return make


def qwen2_gguf(folder: Path) -> list[object]:
    source = open_checkpoint(qwen("Qwen2")(folder).write(folder / "m"))
    convert(source, folder / "m.gguf", "i2_s", Options())
    return ["convert", folder / "m.gguf", "--to", "hf"]


def masters(folder: Path) -> HfModel:
    model = by_rows((0.5, -0.3))(folder)
    for name, entry in model.entries.items():
        if name.endswith("_proj.weight"):
            ramp = np.linspace(-1, 1, int(np.prod(entry.shape))).astype("<f4")
            model.entries[name] = replace(entry, data=ramp.tobytes())
    model.config["quantization_config"] = {
        "quant_method": "bitnet",
        "linear_class": "autobitlinear",
        "quantization_mode": "online",
    }
    return model


def float_gguf(folder: Path) -> list[object]:
    opened = open_checkpoint(seeded(folder, WIDE).write(folder / "m"))
    model = as_gguf(opened, "bitnet-b1.58")
    model.floats("blk.0.attn_q.weight", np.linspace(-1, 1, 256 * 256).astype(np.float32).reshape(256, 256))
    return ["convert", model.write(folder / "m.gguf"), "--to", "i2_s"]


def with_config(folder: Path, **keys: object) -> HfModel:
    model = seeded(folder, WIDE)
    model.config |= keys
    return model


def in_section(folder: Path, **keys: object) -> HfModel:
    model = seeded(folder, WIDE)
    model.config["quantization_config"] |= keys
    return model


def unknown_gguf(folder: Path) -> list[object]:
    model = as_gguf(seeded(folder).write(folder / "m"), "bitnet-b1.58")
    model.set("bitnet-b1.58.unheard_of", g.U32, 3)
    return ["run", model.write(folder / "m.gguf"), "--max-tokens", "1", "--ids", "1"]


def without_section(folder: Path) -> HfModel:
    model = seeded(folder, WIDE)
    del model.config["quantization_config"]
    return model


def without_tokenizer(folder: Path) -> list[object]:
    path = seeded(folder).write(folder / "m")
    (path / "tokenizer.json").rename(folder / "tokenizer.json")
    return ["run", path, "--max-tokens", "1", "--prompt", "a"]


def odd_tokenizer(folder: Path) -> list[object]:
    path = seeded(folder).write(folder / "m")
    model = as_gguf(path, "bitnet-b1.58")
    model.set("tokenizer.ggml.model", g.STRING, "unheard-of")
    (path / "tokenizer.json").rename(folder / "tokenizer.json")
    return ["run", model.write(folder / "m.gguf"), "--max-tokens", "1", "--prompt", "a"]


def tiles(folder: Path) -> list[object]:
    sections = "".join(
        f"[Kernels_{i}]\nm = {m}\nk = {k}\nbm = 64\nbk = 64\nbmm = 32\n"
        for i, (m, k) in enumerate([(256, 256), (128, 256)])
    )
    (folder / "kernel_config.ini").write_text(sections)
    return ["convert", wide(folder).write(folder / "m"), "--to", "tl1"]


TOKENS = {"--ids": ["1,2,3"], "--tokenizer": ["{}/tokenizer.json"]}
CASES = [
    Case("--round-scales stores the nearest positive", to("tq2_0", unhalved), {"--round-scales": [""]}),
    Case("--round-scales stores the nearest it can", to("tq2_0", by_rows((0.3, 0.7))), {
        "--round-scales": [""], "--to": ["iq2_bn"]}),
    Case("--to hf and --to sglbitnt keep the head", to("i2_s", untied), {"--to": ["hf", "sglbitnt"]}),
    Case("--fallback f16 keeps", to("tq2_0", seeded), {"--fallback": ["f16"]}),
    Case("--to hf or --to tq2_0 keeps it", to("sglbitnt", qwen("Qwen3")), {"--to": ["hf", "tq2_0"]}),
    Case("--to iq2_bn, tq2_0, tq1_0 and gguf-f32", to("i2_s", by_rows((0.5, 0.25))), {
        "--to": ["iq2_bn", "tq2_0", "tq1_0", "gguf-f32"]}),
    Case("--quantize absmean makes them", to("i2_s", masters), {"--quantize": ["absmean"]}),
    Case("--to hf keeps it", to("i2_s", qwen("Qwen3", use_sliding_window=True, sliding_window=4, max_window_layers=0)),
         {"--to": ["hf"]}),
    Case("--to hf keeps it", to("i2_s", qwen(
        "Qwen3", rope_scaling={**LLAMA_3_1, "original_max_position_embeddings": 8})), {"--to": ["hf"]}),
    Case("--to tq2_0 keeps the bias", qwen2_gguf, {"--to": ["tq2_0"]}),
    Case("if it changes no arithmetic", to("i2_s", lambda f: with_config(f, unheard_of=3)), {
        "--ignore-key": ["unheard_of"]}),
    Case("if it changes no arithmetic", to("i2_s", lambda f: in_section(f, llm_int8=True)), {
        "--ignore-key": ["quantization_config.llm_int8"]}),
    Case("if it changes no arithmetic", unknown_gguf, {"--ignore-key": ["bitnet-b1.58.unheard_of"]}, writes=False),
    Case("give --tile BM,BK,bm", tiles, {"--tile": ["64,64,32"], "--tile-ini": ["{}/kernel_config.ini"]}),
    Case("say whether its scales multiply or divide", to("i2_s", without_section), {
        "--linear-class": ["autobitlinear", "bitlinear"]}),
    Case("ordinary weights must be ternarised first", float_gguf, {"--quantize": ["absmean"]}),
    Case("give the model's tokenizer.json", odd_tokenizer, TOKENS, writes=False),
    Case("pass token ids", without_tokenizer, TOKENS, writes=False),
    Case("bd_size and mask_token_id in config.json",
         lambda _: ["run", "seeded", "--decode", "iterative", "--max-tokens", "2", "--ids", "1,2,3"],
         {"--block-size": ["8"], "--mask-token-id": ["5"]}, together=True, writes=False),
]  # fmt: skip
# Hints of programs that are not ours, or whose command is run elsewhere.
ELSEWHERE = {
    "download it again; a sound file that was stored sparsely": "cp",
    "give the shards the names that gguf-split gave them": "llama.cpp's gguf-split",
    "make one with: tritgold trace MODEL": "tests/conformance/commands/test_trace_and_compare.py runs it",
}


def hints() -> list[str]:
    """Every text of the reference that is given as ``hint`` and names an option."""
    nodes = [node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    given = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "hint"]
    given += [node.value for node in nodes if isinstance(node, ast.Assign) and "hint" in map(_name, node.targets)]
    return [text for text in map(_text, given) if re.search(r"(^|\s|\()--[a-z]", text)]


def _name(target: ast.AST) -> str:
    return str(getattr(target, "id", getattr(target, "attr", "")))


def _text(node: ast.AST) -> str:
    return "".join(n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def test_every_hint_with_an_option_has_a_case() -> None:
    known = [*(case.hint for case in CASES), *ELSEWHERE, "Diffusion(block=8, mask=5)"]  # the last: its second half
    texts = hints()
    assert [text for text in texts if not any(text.startswith(hint) for hint in known)] == []
    assert len(texts) >= 15


def tritgold_says(words: list[object]) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.mark.filterwarnings("ignore::tritgold.errors.TritgoldWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.hint)
def test_a_hint_that_is_followed_helps(case: Case, tmp_path: Path) -> None:
    words = case.words(tmp_path)
    refused = [*words[:2], tmp_path / "out", *words[2:]] if case.writes else words
    code, output = tritgold_says([*refused, "--json"])
    hint = json.loads(output)["hint"]
    assert code == 3
    assert hint.startswith(case.hint)
    assert set(re.findall(r"--[a-z][a-z-]*", hint)) == case.follows.keys()
    ways = [[option, *shlex.split(value)] for option, values in case.follows.items() for value in values]
    for number, way in enumerate([list(chain.from_iterable(ways))] if case.together else ways):
        again = following(refused, [part.format(tmp_path) for part in way])
        if case.writes:
            again[2] = tmp_path / f"out{number}"
        code, output = tritgold_says(again)
        assert code == 0, (again, output)


def following(words: list[object], way: list[str]) -> list[object]:
    """The words with an option that takes the place of the same one, or of the prompt, or is added."""
    replaced = {"--to": "--to", "--ids": "--prompt"}.get(way[0])
    if replaced in words:
        at = words.index(replaced)
        return [*words[:at], *way, *words[at + 2 :]]
    return [*words, *way]
