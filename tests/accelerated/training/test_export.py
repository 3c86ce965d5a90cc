"""The exported folder: complete, opened by the reference, holding the trained trits; an earlier one is never spoilt."""

import errno
import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from refusals import refusal
from tiny_training import DIFFUSION, TINY, texts, tokenizer, varied

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError, OutputError
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold.tokenizer import Tokenizer
from tritgold_xla.training import export
from tritgold_xla.training.qat import trits_and_scale
from tritgold_xla.training.run_state import begin
from tritgold_xla.training.tokens import CHAT_TEMPLATE, MASK

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
RECIPE = replace(TINY, layers=2)


@pytest.fixture(scope="module")
def run():
    return begin(RECIPE, varied(RECIPE))


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    made = tmp_path_factory.mktemp("export") / "model"
    export.export(run, tokenizer(), made)
    return made


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_all_files_are_there_and_no_scratch_beside_them(folder):
    assert names(folder) == FILES
    assert names(folder.parent) == {"model"}


def test_the_opened_model_holds_what_was_trained(run, folder):
    opened = open_checkpoint(folder)  # which refuses a tensor that nothing reads, and one that is missing
    masters = jax.tree.map(np.asarray, run.parameters)

    def stored(master):
        return bf16_to_f32(f32_to_bf16(master))

    np.testing.assert_array_equal(opened.weights.embedding.rows(slice(None)), stored(masters["embedding"]))
    np.testing.assert_array_equal(opened.weights.final_norm, stored(masters["final_norm"]))
    for n, layer in enumerate(opened.weights.layers):
        for name, stacked in masters["layers"].items():
            if "norm" in name:
                np.testing.assert_array_equal(getattr(layer, name), stored(stacked[n]))
            else:
                trits, scale = jax.jit(trits_and_scale)(stacked[n])
                tensor = layer.linear(name).ternary()
                np.testing.assert_array_equal(tensor.trits, trits)
                np.testing.assert_array_equal(tensor.scale, scale)
    config = opened.config
    assert (config.vocab, config.layers, config.context) == (RECIPE.vocab, RECIPE.layers, RECIPE.context)
    assert replace(config, bos=None, eos=()) == RECIPE.config()
    assert (config.bos, config.eos, config.mask, config.block) == (0, (1, 2), None, None)


def test_the_tokenizer_goes_with_it(folder):
    read = Tokenizer(folder / "tokenizer.json")
    assert read.encode(texts()[0]) == tokenizer().encode(texts()[0]).ids
    assert read.decode(read.encode(texts()[0])) == texts()[0]
    facts = json.loads((folder / "tokenizer_config.json").read_text())
    for name, token in (("bos_token", 0), ("eos_token", 1), ("pad_token", 1), ("mask_token", MASK)):
        assert tokenizer().token_to_id(facts[name]) == token
    assert facts["chat_template"] == CHAT_TEMPLATE
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [1, 2]


def test_block_diffusion_names_its_block_and_mask(tmp_path):
    recipe = replace(DIFFUSION, block=32)
    export.export(begin(recipe), tokenizer(), tmp_path / "model")
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (written["bd_size"], written["mask_token_id"]) == (32, 3)
    config = open_checkpoint(tmp_path / "model").config
    assert (config.block, config.mask) == (32, MASK)


def test_a_float_run_is_refused_and_writes_nothing(tmp_path):
    recipe = replace(TINY, ternary=False)
    error = refusal(lambda: export.export(begin(recipe), tokenizer(), tmp_path / "model"))
    assert (type(error), error.kind) == (ConfigError, "export")
    assert recipe.name in str(error)
    assert names(tmp_path) == set()


def test_an_earlier_export_is_replaced_whole(run, tmp_path):
    (tmp_path / "model" / "below").mkdir(parents=True)
    (tmp_path / "model" / "stale.txt").write_text("old")
    export.export(run, tokenizer(), tmp_path / "model")
    assert names(tmp_path) == {"model"}
    assert names(tmp_path / "model") == FILES


def test_an_export_that_fails_leaves_the_earlier_one(run, folder, tmp_path, monkeypatch):
    export.export(run, tokenizer(), tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}

    def half(folder, config, tensors, texts):
        (folder / "config.json").write_text("{")
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(export, "write_hf_folder", half)
    error = refusal(lambda: export.export(run, tokenizer(), tmp_path / "model"))
    assert (type(error), error.kind, error.file) == (OutputError, "disk-full", str(tmp_path / "model"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
