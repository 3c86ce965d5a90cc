"""Encode and stream with tokenizers of several families, made small: every family's own mistakes are seen."""

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations

import pytest
from library import model
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as RawTokenizer

from tritgold.formats.texts.pre_tokenizers import PRE_TOKENIZERS
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import TEXT
from tritgold_conformance.faults.quick import quick
from tritgold_conformance.questions.text_and_bytes import Question, answer_of, questions, same

CORPUS = [
    "In the beginning God created the heaven and the earth. the 1234 and 12345 of them, 123 of 2024",
    "it's (well) done; 3.14% don't WE'LL two\n\n  lines  and   more\n",
    "é 😸 ﬁn \uff22 café naïve",
] * 3
BYTE_LEVEL = {"gpt-2": "gpt-2", "llama-3": "llama-bpe", "qwen2": "qwen2"}
FAMILIES = (*BYTE_LEVEL, "sentencepiece", "unigram")
Encode = Callable[[Tokenizer, str], list[int]]


@cache
def tokenizer_json(family: str) -> str:
    """A tokenizer.json of the family, trained on CORPUS, that puts <bos> in front."""
    common = {"special_tokens": ["<bos>", "<eos>", "<unk>"], "show_progress": False}
    if family in BYTE_LEVEL:
        raw = RawTokenizer(models.BPE())
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        raw.pre_tokenizer, raw.decoder = level, decoders.ByteLevel()
        raw.train_from_iterator(
            CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **common)
        )
        # Trained without splitting, so that merges cross every border that a rule draws.
        split = pre_tokenizers.Split(Regex(PRE_TOKENIZERS[BYTE_LEVEL[family]].splits[0]), "isolated")
        raw.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    elif family == "sentencepiece":  # as Llama 2's: spaces are ▁, what has no piece becomes bytes
        raw = RawTokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        raw.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        parts = [f"<0x{byte:02X}>" for byte in range(256)]
        common["special_tokens"] = [*common["special_tokens"], *parts]  # type: ignore[misc]
        words = [word for line in CORPUS[:2] for word in line.split()]  # no é and no emoji: they are bytes
        raw.train_from_iterator(words, trainers.BpeTrainer(vocab_size=420, **common))
    else:
        raw = RawTokenizer(models.Unigram())
        raw.pre_tokenizer = pre_tokenizers.Metaspace()
        raw.decoder = decoders.Metaspace()
        raw.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=150, unk_token="<unk>", **common))
    bos = raw.token_to_id("<bos>")
    raw.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    return raw.to_str()


@cache
def asked(family: str) -> list[tuple[Question, object]]:
    """The questions about ids of texts, and the right answers."""
    golden = quick(replace(model("seeded"), tokenizer=tokenizer_json(family)))
    found = [q for q in questions(golden, [3, 1, 4, 1, 5]) if q.method == "encode"]
    return [(q, answer_of(golden, q)) for q in found]


def cut(pattern: Callable[[str], bool]) -> Encode:
    """Each letter for which the pattern holds is a text of its own."""

    def encode(tokenizer: Tokenizer, text: str) -> list[int]:
        pieces = [""]
        for letter in text:
            pieces = [*pieces, letter, ""] if pattern(letter) else [*pieces[:-1], pieces[-1] + letter]
        ids = [i for piece in pieces if piece for i in tokenizer.encode(piece, special=False)]
        return [*tokenizer.encode("")[:1], *ids]

    return encode


WRONG: dict[str, Encode] = {
    "digits apart": cut(str.isdigit),
    "spaces apart": cut(str.isspace),
    "punctuation apart": cut(lambda letter: unicodedata.category(letter).startswith("P")),
    "lower case": lambda t, text: t.encode(text.lower()),
    "ASCII alone": lambda t, text: t.encode(text.encode("ascii", "ignore").decode()),
    "decomposed": lambda t, text: t.encode(unicodedata.normalize("NFD", text)),
    "compatible": lambda t, text: t.encode(unicodedata.normalize("NFKC", text)),
    "a space in front": lambda t, text: t.encode(" " + text),
    "stripped": lambda t, text: t.encode(text.strip()),
    "lines joined": lambda t, text: t.encode(" ".join(text.split())),
    "no BOS": lambda t, text: t.encode(text, special=False),
    "two BOS": lambda t, text: [*t.encode("")[:1], *t.encode(text)],
    "an end": lambda t, text: [*t.encode(text), 1],
    "special tokens as text": lambda t, text: [i for letter in text for i in t.encode(letter, special=False)],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_differ_and_are_read_as_they_are(family: str) -> None:
    ids = {family: [right for _, right in asked(family)] for family in FAMILIES}
    assert all(ids[family] != ids[other] for other in FAMILIES if other != family)
    tokenizer = Tokenizer.from_text(tokenizer_json(family))
    for question, right in asked(family):
        assert same(tokenizer.encode(question.arguments[0]), right)


@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_readings_are_seen(family: str) -> None:
    tokenizer = Tokenizer.from_text(tokenizer_json(family))
    for name, encode in WRONG.items():
        if (family, name) == ("qwen2", "digits apart"):
            continue  # its own rule
        given = [(encode(tokenizer, question.arguments[0]), right) for question, right in asked(family)]
        assert any(not same(ids, right) for ids, right in given), name


@pytest.mark.parametrize(("family", "other"), list(permutations(BYTE_LEVEL, 2)))
def test_another_familys_splitting_is_seen(family: str, other: str) -> None:
    """The vocabulary is right, and the rule that splits a text before the merges is another family's."""
    raw = RawTokenizer.from_str(tokenizer_json(family))
    raw.pre_tokenizer = RawTokenizer.from_str(tokenizer_json(other)).pre_tokenizer
    mixed = Tokenizer.from_text(raw.to_str())
    assert any(not same(mixed.encode(q.arguments[0]), right) for q, right in asked(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_faults_of_the_library_are_seen_on_every_family(family: str) -> None:
    """digits-* are switches of the tokenizer that stands in where a model has none: no fault of a given tokenizer."""
    golden = quick(replace(model("seeded"), tokenizer=tokenizer_json(family)))
    texts = [q for q in questions(golden, [3, 1, 4, 1, 5]) if q.level == "text"]
    for fault in FAULTS.values():
        if fault.area == TEXT and not fault.name.startswith("digits-"):
            mutant = fault.apply(golden)
            assert mutant is not None
            assert any(not same(answer_of(mutant, q), answer_of(golden, q)) for q in texts), fault.name
