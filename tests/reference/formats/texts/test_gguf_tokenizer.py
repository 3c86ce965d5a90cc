"""Tokenizers in GGUF metadata: the same ids from llama.cpp's keys alone, and refusals of whatever is damaged."""

import json
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import frugal, refusal
from tokenizer_files import (
    CHARACTERS,
    SPM_TOKENS,
    TELLING,
    WORDS,
    as_text,
    ruled_file,
    sentencepiece,
    spm_file,
    template,
    texts,
)
from tokenizers import Tokenizer as Library

from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.texts.gguf_tokenizer import tokenizer_json, tokenizer_metadata
from tritgold.golden import trained_model
from tritgold.golden.seeded import byte_tokenizer

examples = settings(max_examples=100, deadline=None, derandomize=True)

G = "tokenizer.ggml."
AR = (trained_model("kjv-ar") / "tokenizer.json").read_text(encoding="utf-8")
DLM = (trained_model("kjv-dlm") / "tokenizer.json").read_text(encoding="utf-8")


RULES = ("gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "smollm", "falcon", "default")
RULED = {pre: as_text(ruled_file(pre)) for pre in RULES}
# tokenizer.json, its BOS and EOS, rows of the embedding.
CASES: dict[str, tuple[str, int, int, int]] = {
    "kjv-ar": (AR, 0, 1, 2048),
    "kjv-dlm, padded": (DLM, 0, 1, 2056),
    "seeded": (byte_tokenizer(), 256, 257, 259),
    **{pre: (text, 0, 1, 600) for pre, text in RULED.items()},
    "sentencepiece": (as_text(spm_file()), 1, 2, len(SPM_TOKENS)),
    "sentencepiece, no prefix": (as_text(spm_file(prefix=False)), 1, 2, len(SPM_TOKENS) + 3),
}


def written(name: str) -> dict[str, Any]:
    text, bos, eos, rows = CASES[name]
    return tokenizer_metadata(text, bos, (eos,), "{{ x }}", rows)


def keys_alone(name: str) -> dict[str, Any]:
    return {key: value for key, value in written(name).items() if key != "tokenizer.huggingface.json"}


def built(metadata: dict[str, Any]) -> Library:
    return Library.from_str(tokenizer_json(metadata) or "")


BUILT = {name: (Library.from_str(CASES[name][0]), built(keys_alone(name))) for name in CASES}


@pytest.mark.parametrize("name", CASES)
@examples
@given(texts)
def test_the_keys_alone_give_the_same_ids_and_text(name: str, text: str) -> None:
    theirs, ours = BUILT[name]
    ids = theirs.encode(text).ids
    assert ours.encode(text).ids == ids
    assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("name", CASES)
@examples
@given(st.data())
def test_any_ids_decode_to_the_same_text(name: str, data: st.DataObject) -> None:
    """Ids of the padding among them: they have no text."""
    theirs, ours = BUILT[name]
    ids = data.draw(st.lists(st.integers(0, CASES[name][3] - 1), max_size=12))
    assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("name", CASES)
def test_the_text_comes_back_byte_for_byte(name: str) -> None:
    assert tokenizer_json(written(name)) == CASES[name][0]


@pytest.mark.parametrize("prefix", [True, False])
@examples
@given(texts)
def test_a_built_sentencepiece_does_as_sentencepiece(prefix: bool, text: str) -> None:
    """Its algorithm, written a second time in the helpers, knows nothing of merges."""
    text = text.replace("<eos>", "").replace("</s>", "")
    ours = BUILT["sentencepiece" if prefix else "sentencepiece, no prefix"][1]
    expected = sentencepiece(text, prefix) if text else []
    assert ours.encode(text, add_special_tokens=False).ids == expected


def test_the_rules_differ_on_the_telling_texts() -> None:
    """Otherwise the tests above could not see a wrong rule (bug case B45)."""
    rules = [pre for pre in RULES if pre != "smaug-bpe"]  # llama-bpe that heeds merges, as those here always do
    found = [[BUILT[pre][1].encode(text).ids for text in TELLING] for pre in rules]
    assert all(a != b for a, b in combinations(found, 2))


# ---- the keys ----------------------------------------------------------------------------------------------------


def test_the_keys_of_a_byte_level_tokenizer() -> None:
    found = written("kjv-dlm, padded")
    raw = json.loads(DLM)["model"]
    assert found[f"{G}tokens"][:2048] == sorted(raw["vocab"], key=raw["vocab"].get)
    assert found[f"{G}tokens"][2048:] == [f"[PAD{i}]" for i in range(2048, 2056)]
    types = found.pop(f"{G}token_type")
    assert (types.dtype, types.tolist()) == (np.int32, [3] * 4 + [1] * 2044 + [5] * 8)
    assert found[f"{G}merges"] == [" ".join(merge) for merge in raw["merges"]]
    rest = {k: v for k, v in found.items() if not k.endswith((".tokens", ".merges", ".json"))}
    assert rest == {
        f"{G}model": "gpt2",
        f"{G}pre": "gpt-2",
        f"{G}bos_token_id": 0,
        f"{G}eos_token_id": 1,
        f"{G}add_bos_token": True,
        f"{G}add_eos_token": False,
        "tokenizer.chat_template": "{{ x }}",
    }


def test_the_keys_of_a_sentencepiece_like_tokenizer() -> None:
    found = written("sentencepiece, no prefix")
    types = [2, 3, 3] + [6] * 256 + [1] * (len(WORDS) + len(CHARACTERS)) + [5] * 3
    assert found[f"{G}token_type"].tolist() == types
    scores = found[f"{G}scores"]
    assert (scores.dtype, scores.shape) == (np.float32, (len(types),))
    # WORDS in falling order, each made of two pieces, but for those of one character that no merge can make.
    made = [scores[SPM_TOKENS.index(word)] for word in WORDS]
    assert made[:4] == [0.0, -1.0, -2.0, -3.0]
    assert sorted(made, reverse=True) == made
    rest = {k: v for k, v in found.items() if not k.endswith((".tokens", ".token_type", ".scores", ".json"))}
    assert rest == {
        f"{G}model": "llama",
        f"{G}pre": "default",
        f"{G}bos_token_id": 1,
        f"{G}eos_token_id": 2,
        f"{G}unknown_token_id": 0,
        f"{G}add_bos_token": True,
        f"{G}add_eos_token": False,
        f"{G}add_space_prefix": False,
        "tokenizer.chat_template": "{{ x }}",
    }


def test_nothing_is_written_for_what_there_is_not() -> None:
    raw = json.loads(AR)
    raw["post_processor"] = None
    found = tokenizer_metadata(as_text(raw), None, (), None)
    assert not [key for key in found if key.endswith(("_token_id", "chat_template"))]
    assert (found[f"{G}add_bos_token"], len(found[f"{G}tokens"])) == (False, 2048)


def test_a_token_behind_the_text() -> None:
    raw = json.loads(AR)
    raw["post_processor"] = template("<bos>", 0, ("<eos>", 1))
    found = tokenizer_metadata(as_text(raw), 0, (1, 2), None)
    assert (found[f"{G}add_bos_token"], found[f"{G}add_eos_token"]) == (True, True)
    del found["tokenizer.huggingface.json"]
    assert built(found).encode("a").ids[-1] == 1


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("tokenizer-tokens", {"rows": 2047}),
        ("tokenizer-template", {"bos": None}),
        ("tokenizer-template", {"bos": 1}),
        ("tokenizer-pre", {"pre": "gpt-5"}),
        ("tokenizer", {"tokenizer_json": "{}"}),
    ],
)
def test_what_cannot_be_written(kind: str, arguments: dict[str, Any]) -> None:
    good: dict[str, Any] = {"tokenizer_json": AR, "bos": 0, "eos": (1,), "chat_template": None, "rows": 2048}
    assert refusal(lambda: tokenizer_metadata(**good | arguments)).kind == kind


def test_a_token_called_like_the_padding() -> None:
    raw = json.loads(AR)
    raw["added_tokens"].append({"id": 2049, "content": "[PAD2048]", "special": True})
    assert "name of the padding" in str(refusal(lambda: tokenizer_metadata(as_text(raw), 0, (1,), None)))


# ---- files of other writers --------------------------------------------------------------------------------------


def llama3_file(begin: str = "<|begin_of_text|>") -> dict[str, Any]:
    """As the published GGUF of BitNet 2B-4T has it: no pre, scores of zero, add_bos_token."""
    raw = json.loads(AR)["model"]
    normal = [token for token in sorted(raw["vocab"], key=raw["vocab"].get) if not token.startswith("<")]
    tokens = [*normal, *(f"filler {i}" for i in range(128_000 - len(normal))), begin, "<|end_of_text|>"]
    return {
        f"{G}model": "gpt2",
        f"{G}tokens": tokens,
        f"{G}scores": np.zeros(len(tokens), np.float32),
        f"{G}token_type": np.array([1] * 128_000 + [3, 3], np.int32),
        f"{G}merges": [" ".join(m) for m in raw["merges"] if "".join(m) in set(normal)],
        f"{G}bos_token_id": 128_000,
        f"{G}eos_token_id": 128_001,
        f"{G}add_bos_token": True,
    }


def test_a_file_without_pre_is_taken_for_llama_3_if_its_tokens_are() -> None:
    with pytest.warns(TritgoldWarning, match="taken for llama-bpe"):
        library = built(llama3_file())
    assert library.encode("12345").ids[0] == 128_000
    # Digits in threes: GPT-2's rule has none.
    assert [library.decode([i]) for i in library.encode("1234", add_special_tokens=False).ids][-1] == "4"
    error = refusal(lambda: tokenizer_json(llama3_file("<s>")))
    assert error.kind == "tokenizer-pre"
    assert "llama-bpe" in str(error.expected)


@pytest.mark.parametrize(("pre", "adds"), [("llama-bpe", True), ("falcon3", True), ("gpt-2", False), ("qwen2", False)])
def test_what_llama_cpp_assumes_of_bos(pre: str, adds: bool) -> None:
    metadata = keys_alone("kjv-ar") | {f"{G}pre": pre}
    del metadata[f"{G}add_bos_token"]
    assert (built(metadata).encode("a").ids[0] == 0) is adds


def test_what_llama_cpp_assumes_of_sentencepiece() -> None:
    """A space and BOS before the text."""
    metadata = keys_alone("sentencepiece, no prefix")
    del metadata[f"{G}add_bos_token"], metadata[f"{G}add_space_prefix"]
    assert built(metadata).encode("the").ids == [1, *sentencepiece("the")]


def test_without_token_types_every_token_is_normal() -> None:
    metadata = keys_alone("kjv-ar")
    del metadata[f"{G}token_type"]
    assert 1 not in built(metadata).encode("<eos>").ids


@pytest.mark.parametrize("metadata", [{}, {f"{G}model": "none"}, {f"{G}model": "no_vocab"}, {f"{G}tokens": ["a"]}])
def test_no_tokenizer(metadata: dict[str, Any]) -> None:
    assert tokenizer_json(metadata) is None


# ---- hostile metadata --------------------------------------------------------------------------------------------

ABSENT = object()
NO_NEWLINE = [*SPM_TOKENS[:13], "x", *SPM_TOKENS[14:]]
NAN = np.full(len(SPM_TOKENS), np.nan, np.float32)
TIED = np.zeros(len(SPM_TOKENS), np.float32)
HOSTILE: list[tuple[str, str, str, dict[str, Any]]] = [
    ("kjv-ar", "tokenizer-key", "huggingface", {"tokenizer.huggingface.json": 7}),
    ("kjv-ar", "tokenizer-model", "bert", {f"{G}model": "bert"}),
    ("kjv-ar", "tokenizer-key", "model", {f"{G}model": ["gpt2"]}),
    ("kjv-ar", "tokenizer-key", "tokens': is missing", {f"{G}tokens": ABSENT}),
    ("kjv-ar", "tokenizer-key", "tokens", {f"{G}tokens": np.arange(2048)}),
    ("kjv-ar", "tokenizer-key", "an item of the wrong type: found 7", {f"{G}tokens": ["a", 7]}),
    ("kjv-ar", "tokenizer-tokens", "'a': occurs twice", {f"{G}tokens": ["a"] * 2048}),
    ("kjv-ar", "tokenizer-key", "token_type", {f"{G}token_type": np.ones(2047, np.int32)}),
    ("kjv-ar", "tokenizer-key", "token_type", {f"{G}token_type": np.ones((2048, 1), np.int32)}),
    ("kjv-ar", "tokenizer-key", "token_type", {f"{G}token_type": np.ones(2048, np.float32)}),
    ("kjv-ar", "tokenizer-key", "no token type: found 7", {f"{G}token_type": np.full(2048, 7)}),
    ("kjv-ar", "tokenizer-key", "no token type: found 0", {f"{G}token_type": np.zeros(2048, int)}),
    ("kjv-ar", "tokenizer-key", "token_type", {f"{G}token_type": ["1"] * 2048}),
    ("kjv-ar", "tokenizer-key", "merges", {f"{G}merges": ABSENT}),
    ("kjv-ar", "tokenizer-key", "merges", {f"{G}merges": "t h"}),
    ("kjv-ar", "tokenizer-merges", "is not a pair", {f"{G}merges": ["t h", "th"]}),
    ("kjv-ar", "tokenizer-merges", "is not a pair", {f"{G}merges": ["t h e"]}),
    ("kjv-ar", "tokenizer-merges", "is not a pair", {f"{G}merges": [" t"]}),
    ("kjv-ar", "tokenizer-merges", "'zz'", {f"{G}merges": ["t zz"]}),
    ("kjv-ar", "tokenizer-merges", "names a token", {f"{G}merges": ["t h\x1b[2J"]}),
    ("kjv-ar", "tokenizer-pre", "gpt-5", {f"{G}pre": "gpt-5"}),
    ("kjv-ar", "tokenizer-pre", "is missing", {f"{G}pre": ABSENT}),
    ("kjv-ar", "tokenizer-key", "pre", {f"{G}pre": 3}),
    ("kjv-ar", "tokenizer-key", "add_bos_token", {f"{G}add_bos_token": 1}),
    ("kjv-ar", "tokenizer-key", "bos_token_id", {f"{G}bos_token_id": ABSENT}),
    ("kjv-ar", "tokenizer-key", "bos_token_id", {f"{G}bos_token_id": True}),
    ("kjv-ar", "tokenizer-tokens", "before the text 2048", {f"{G}bos_token_id": 2048}),
    ("kjv-ar", "tokenizer-tokens", "before the text -1", {f"{G}bos_token_id": -1}),
    ("kjv-ar", "tokenizer-key", "eos_token_id", {f"{G}add_eos_token": True, f"{G}eos_token_id": ABSENT}),
    ("sentencepiece", "tokenizer-key", "scores", {f"{G}scores": ABSENT}),
    ("sentencepiece", "tokenizer-key", "scores", {f"{G}scores": np.zeros(7, np.float32)}),
    ("sentencepiece", "tokenizer-key", "scores", {f"{G}scores": np.zeros(len(SPM_TOKENS), np.int32)}),
    ("sentencepiece", "tokenizer-key", "no number for token 0: found nan", {f"{G}scores": NAN}),
    ("sentencepiece", "tokenizer-key", "found inf", {f"{G}scores": np.full_like(NAN, np.inf)}),
    ("sentencepiece", "tokenizer-merges", "have one score", {f"{G}scores": TIED}),
    ("sentencepiece", "tokenizer-key", "is not a control token", {f"{G}unknown_token_id": 259}),
    ("sentencepiece", "tokenizer-key", "unknown_token_id", {f"{G}unknown_token_id": "<unk>"}),
    ("sentencepiece", "tokenizer-tokens", "byte token <0x0A>", {f"{G}tokens": NO_NEWLINE}),
]


@pytest.mark.parametrize(("base", "kind", "says", "changes"), HOSTILE)
def test_damaged_metadata(base: str, kind: str, says: str, changes: dict[str, Any]) -> None:
    metadata = {k: v for k, v in (keys_alone(base) | changes).items() if v is not ABSENT}
    with frugal():
        error = refusal(lambda: tokenizer_json(metadata))
    assert isinstance(error, FormatError)
    assert error.kind == kind
    assert says in str(error)


def test_huge_texts_are_named_in_short() -> None:
    huge = "x" * 5_000_000
    for changes in ({f"{G}model": huge}, {f"{G}pre": huge}, {f"{G}merges": [huge]}, {f"{G}tokens": [huge] * 2048}):
        with frugal(megabytes=120):
            refusal(lambda changes=changes: tokenizer_json(keys_alone("kjv-ar") | changes))


junk = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 3000), st.floats(), st.text(max_size=3),
    st.lists(st.text(max_size=3), max_size=4),
    st.builds(np.array, st.lists(st.integers(-3, 9), max_size=4)),
    st.builds(np.array, st.lists(st.floats(), max_size=4)),
)  # fmt: skip


@examples
@given(st.sampled_from(["kjv-ar", "sentencepiece"]), st.data())
def test_junk_under_any_key_is_read_or_refused_by_name(base: str, data: st.DataObject) -> None:
    metadata = keys_alone(base)
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
        metadata[key] = data.draw(junk)
    with suppress(FormatError):
        text = tokenizer_json(metadata)
        assert text is None or Library.from_str(text)
