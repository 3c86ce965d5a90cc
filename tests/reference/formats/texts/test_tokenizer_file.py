"""tokenizer.json: what is understood, and that nothing which changes ids is passed over."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from refusals import frugal, refusal
from tokenizer_files import SPM_TOKENS, as_text, spm_file, template

from tritgold.formats.texts.tokenizer_file import read_tokenizer_file
from tritgold.golden import trained_model
from tritgold.golden.seeded import byte_tokenizer

AR = (trained_model("kjv-ar") / "tokenizer.json").read_text(encoding="utf-8")


def test_a_trained_byte_level_tokenizer() -> None:
    read, raw = read_tokenizer_file(AR), json.loads(AR)
    assert (read.kind, read.pre, read.first, read.last, read.unknown) == ("gpt2", "gpt-2", 0, None, None)
    assert read.ids == raw["model"]["vocab"]
    assert [list(merge) for merge in read.merges] == raw["model"]["merges"]
    assert (read.control, read.user_defined) == ({0, 1, 2, 3}, set())


def test_bytes_and_added_tokens_outside_the_vocabulary() -> None:
    read = read_tokenizer_file(byte_tokenizer())
    assert (read.tokens[72], read.tokens[256:]) == ("H", ["<bos>", "<eos>", "<eot>"])
    assert (read.first, read.control, read.pre) == (256, {256, 257, 258}, "gpt-2")


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_like_tokenizer(prefix: bool) -> None:
    read = read_tokenizer_file(as_text(spm_file(prefix)))
    assert (read.kind, read.space_prefix, read.first, read.unknown) == ("llama", prefix, 1, 0)
    assert list(read.tokens) == SPM_TOKENS


def altered(base: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> str:
    change(base)
    return as_text(base)


def test_other_spellings_of_the_same() -> None:
    """Merges as texts, no type of the model, a Sequence of processors, an empty normaliser, user-defined tokens."""

    def change(raw: dict[str, Any]) -> None:
        raw["model"]["merges"] = [" ".join(merge) for merge in raw["model"]["merges"]]
        del raw["model"]["type"]
        raw["post_processor"] = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, raw["post_processor"]]}
        raw["normalizer"] = {"type": "Sequence", "normalizers": []}
        raw["added_tokens"][3]["special"] = False

    read = read_tokenizer_file(altered(json.loads(AR), change))
    assert (read.merges, read.first) == (read_tokenizer_file(AR).merges, 0)
    assert (read.control, read.user_defined) == ({0, 1, 2}, {3})


def test_ids_with_holes_and_a_token_behind() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["added_tokens"].append({"id": 300, "content": "<far>", "special": True})
        raw["post_processor"] = template("<bos>", 256, ("<far>", 300))

    read = read_tokenizer_file(altered(json.loads(byte_tokenizer()), change))
    assert (len(read.tokens), read.tokens[259], read.tokens[300]) == (301, None, "<far>")
    assert (read.first, read.last) == (256, 300)


def test_a_name_given_for_the_rule_is_believed() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["pre_tokenizer"] = {"type": "Whitespace"}

    text = altered(json.loads(AR), change)
    assert refusal(lambda: read_tokenizer_file(text)).kind == "tokenizer-pre"
    assert read_tokenizer_file(text, "falcon3").pre == "falcon3"
    error = refusal(lambda: read_tokenizer_file(text, "falcon4"))
    assert "llama-bpe" in str(error.expected)


def setting(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        inner: Any = raw
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


SIDES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
GPT2_REFUSED: list[tuple[str, str, Callable[[dict[str, Any]], object]]] = [
    ("tokenizer-unsupported", "model: is not supported: found 'Unigram'", setting("model", "type", value="Unigram")),
    ("tokenizer-unsupported", "truncation", setting("truncation", value={"max_length": 4})),
    ("tokenizer-unsupported", "padding", setting("padding", value={"strategy": "BatchLongest"})),
    ("tokenizer-unsupported", "dropout", setting("model", "dropout", value=0.5)),
    ("tokenizer-unsupported", "end_of_word_suffix", setting("model", "end_of_word_suffix", value="</w>")),
    ("tokenizer-unsupported", "normalizer", setting("normalizer", value={"type": "Lowercase"})),
    ("tokenizer-unsupported", "normalizer", setting("normalizer", value={"type": "Sequence", "normalizers": 5})),
    ("tokenizer-pre", "ByteLevel", setting("pre_tokenizer", value=SIDES)),
    ("tokenizer-pre", "None", setting("pre_tokenizer", value=None)),
    ("tokenizer-pre", "gpt-2", setting("model", "ignore_merges", value=True)),
    ("tokenizer-pre", "gpt-2", setting("normalizer", value={"type": "NFC"})),
    ("tokenizer-unsupported", "decoder", setting("decoder", value={"type": "Metaspace"})),
    ("tokenizer-unsupported", "lstrip", setting("added_tokens", 3, "lstrip", value=True)),
    ("tokenizer-unsupported", "single_word", setting("added_tokens", 3, "single_word", value=True)),
    ("tokenizer-unsupported", "post_processor", setting("post_processor", value={"type": "BertProcessing"})),
    ("tokenizer-unsupported", "at most one token", setting("post_processor", "single", value=[])),
    ("tokenizer-unsupported", "found [2]", setting("post_processor", "special_tokens", "<bos>", "ids", value=[2])),
    ("tokenizer", "post_processor: single", setting("post_processor", "single", value=7)),
    ("tokenizer", "model.merges: is not a pair", setting("model", "merges", 0, value=["a"])),
    ("tokenizer", "model.merges: is not a pair", setting("model", "merges", 0, value="a b c")),
    ("tokenizer", "model.merges: is not a pair", setting("model", "merges", 0, value=[1, 2])),
    ("tokenizer-merges", "'zzz'", setting("model", "merges", 0, value=["a", "zzz"])),
    ("tokenizer", "model.vocab: has the wrong type", setting("model", "vocab", value=["a"])),
    ("tokenizer", "id of token 'the'", setting("model", "vocab", "the", value=-1)),
    ("tokenizer", "id of token 'the'", setting("model", "vocab", "the", value=1 << 40)),
    ("tokenizer", "id of token 'the'", setting("model", "vocab", "the", value=True)),
    ("tokenizer", "one id has two texts", setting("model", "vocab", "the", value=5)),
    ("tokenizer", "token '<mask>': has two ids", setting("added_tokens", 3, "id", value=9)),
    ("tokenizer", "added_tokens", setting("added_tokens", 3, value="<mask>")),
    ("tokenizer", "is not Unicode text", setting("model", "vocab", "\ud800", value=3000)),
    ("tokenizer", "model: has the wrong type", setting("model", value=None)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "change"), GPT2_REFUSED)
def test_what_is_refused(kind: str, says: str, change: Callable[[dict[str, Any]], object]) -> None:
    raw = json.loads(AR)
    change(raw)
    text = json.dumps(raw)  # ASCII: a lone surrogate is an escape
    with frugal():
        error = refusal(lambda: read_tokenizer_file(text))
    assert error.kind == kind
    assert says in str(error)


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
LLAMA_REFUSED = [
    ("pre_tokenizer", setting("pre_tokenizer", value=METASPACE)),
    ("normalizer", setting("normalizer", value=None)),
    ("normalizer", setting("normalizer", "normalizers", value=[{"type": "Prepend", "prepend": "▁"}])),
    ("decoder", setting("decoder", value={"type": "ByteLevel"})),
    ("decoder", setting("decoder", "decoders", value=[])),
    ("unk_token", setting("model", "unk_token", value="▁t")),
    ("normalized", setting("added_tokens", 1, "normalized", value=True)),
]


@pytest.mark.parametrize(("says", "change"), LLAMA_REFUSED)
def test_what_is_refused_of_byte_fallback(says: str, change: Callable[[dict[str, Any]], object]) -> None:
    error = refusal(lambda: read_tokenizer_file(altered(spm_file(), change)))
    assert error.kind == "tokenizer-unsupported"
    assert says in str(error)


def test_an_unknown_token_needs_all_bytes_or_none() -> None:
    """With a token for every byte nothing is unknown; without, llama.cpp drops what the library calls unknown."""
    raw = json.loads(AR)
    raw["model"]["unk_token"] = "<eos>"
    assert read_tokenizer_file(as_text(raw)).unknown is None
    del raw["model"]["vocab"]["Ā"]
    assert refusal(lambda: read_tokenizer_file(as_text(raw))).kind == "tokenizer-unsupported"


@pytest.mark.parametrize("text", ["", "{}", "null", "[1]", "[" * 5000, '{"model": {}, "model": {}}', "\x1b[2J"])
def test_what_is_no_tokenizer(text: str) -> None:
    assert refusal(lambda: read_tokenizer_file(text)).kind == "tokenizer"
