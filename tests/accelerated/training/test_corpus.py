"""The corpus: refused unless it is exactly the text, cut into chapters without what the program prints around them."""

import hashlib

import pytest
from refusals import refusal

from tritgold.errors import FormatError
from tritgold_xla.training import corpus

PRINTED = """bible: Debian/BRS Release 4.36
Hit '?' for help.
Ge1:1 In the beginning.
bible(KJV) [Gen1:1]> Gen1:1-Rev22:21
Ge1:1 In the beginning.
Ge1:2 And the earth.
Ge2:1 Thus the heavens: 2:4 and so on.
1Sa1:1 Now there was\x20
1Sa1:2 And he had.
2Sa1:1 Now it came to pass.
bible(KJV) [2Sa1:1]>\x20
"""
CHAPTERS = [
    "In the beginning.\nAnd the earth.",
    "Thus the heavens: 2:4 and so on.",
    "Now there was\nAnd he had.",
    "Now it came to pass.",
]


def test_a_missing_text_is_refused(tmp_path):
    error = refusal(lambda: corpus.read_corpus(tmp_path / "kjv.txt"))
    assert (type(error), error.kind) == (FormatError, "corpus-missing")
    assert str(tmp_path / "kjv.txt") in str(error)
    assert "--help" in error.hint


def test_another_text_is_refused_with_both_hashes(tmp_path):
    path = tmp_path / "kjv.txt"
    path.write_text(PRINTED)
    error = refusal(lambda: corpus.read_corpus(path))
    assert (type(error), error.kind) == (FormatError, "corpus-hash")
    assert (error.got, error.expected) == (hashlib.sha256(PRINTED.encode()).hexdigest(), corpus.SHA256)
    assert error.got in str(error)
    assert error.expected in str(error)


def test_the_text_itself_is_read(tmp_path, monkeypatch):
    # Or the test above could pass by refusing everything.
    path = tmp_path / "kjv.txt"
    path.write_text(PRINTED)
    monkeypatch.setattr(corpus, "SHA256", hashlib.sha256(PRINTED.encode()).hexdigest())
    assert corpus.read_corpus(path) == corpus.Corpus(CHAPTERS, [])


def test_chapters_hold_verses_and_nothing_else():
    assert corpus.chapters(PRINTED) == CHAPTERS


@pytest.mark.parametrize("count", [0, 1, 10, 11, 30, 31, 1189])
def test_every_twentieth_chapter_is_held_out_and_none_is_lost(count):
    texts = [f"chapter {i}" for i in range(count)]
    parts = corpus.split(texts)
    assert parts.held_out == texts[10::20]
    assert not set(parts.held_out) & set(parts.train)
    assert sorted(parts.train + parts.held_out, key=texts.index) == texts
    assert parts.train == sorted(parts.train, key=texts.index)


def test_a_passage_goes_from_its_opening_to_the_end_of_its_chapter(monkeypatch):
    monkeypatch.setattr(corpus, "OPENINGS", ("And the earth.", "Now it"))
    assert corpus.passages(["Now there was", *CHAPTERS]) == ["And the earth.", "Now it came to pass."]
    with pytest.raises(KeyError, match="And the earth"):
        corpus.passages(CHAPTERS[1:])
