"""tritgold run and inspect on a model with more ids than its tokenizer has texts for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from small_models import TINY, seeded

from tritgold_conformance.cli import main

EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five ids more than the tokenizer's 259; their rows are 50 times some others, so that greedy would take them."""
    folder = tmp_path_factory.mktemp("padded")
    model = seeded(folder, TINY)
    entry = model.entries[EMBEDDING]
    rows = np.frombuffer(entry.data, ml_dtypes.bfloat16).reshape(entry.shape)
    more = np.concatenate([rows, 50 * rows[:5]]).astype(ml_dtypes.bfloat16)
    model.entries[EMBEDDING] = replace(entry, shape=more.shape, data=more.tobytes())
    model.config["vocab_size"] = len(more)
    return model.write(folder / "hf")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def ids(folder: Path, *words: str) -> tuple[list[int], str, Any]:
    done = run("run", str(folder), "--ids", "1,2,3", "--max-tokens", "8", "--json", *words)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    return facts["ids"], done.stderr, facts["sampling"]


def test_ids_without_text_are_chosen_only_where_that_is_asked_for(padded: Path) -> None:
    plain, said, sampling = ids(padded)
    assert max(plain) < 259
    assert "the model has 264 ids, the tokenizer 259: ids from 259 on have no text and are not chosen" in said
    assert sampling["text_ids"] == 259
    asked, said, sampling = ids(padded, "--padding-ids")
    assert max(asked) >= 259
    assert "no text" not in said
    assert sampling is None


def test_several_prompts_never_take_them_either(padded: Path) -> None:
    done = run("run", str(padded), "--ids", "1,2,3", "--ids", "4,5", "--max-tokens", "6", "--json")
    assert all(max(text["ids"]) < 259 for text in json.loads(done.stdout)["texts"])


def test_inspect_says_both_sizes(padded: Path) -> None:
    done = run("inspect", str(padded))
    assert "Tokenizer: 259 ids, the model 264; those from 259 on have no text" in done.stdout
    assert json.loads(run("inspect", str(padded), "--json").stdout)["tokenizer"] == {"ids": 259, "vocab": 264}


def test_a_padded_model_keeps_its_ids_through_gguf(padded: Path, tmp_path: Path) -> None:
    """llama.cpp wants a token a row: they are unused ones there, and have no text on the way back."""
    assert run("convert", str(padded), str(tmp_path / "m.gguf"), "--to", "i2_s").exit_code == 0
    assert ids(tmp_path / "m.gguf")[0] == ids(padded)[0]
    assert "Tokenizer: 259 ids, the model 264" in run("inspect", str(tmp_path / "m.gguf")).stdout
