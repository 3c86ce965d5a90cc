"""The tokenizer's door, and a stream that never splits a character."""

import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refusal
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from tritgold.golden.seeded import byte_tokenizer
from tritgold.tokenizer import LONG, TextStream, Tokenizer

CAT = "\U0001f638".encode()  # F0 9F 98 B8, one token a byte


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(byte_tokenizer(), encoding="utf-8")
    return Tokenizer(path)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(token) for token in ids), stream.finish()]


def test_ids_are_bytes_behind_bos(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Hé") == [256, *"Hé".encode()]
    assert tokenizer.decode(tokenizer.encode("Hé \U0001f638")) == "Hé \U0001f638"
    assert tokenizer.encode("") == [256]
    assert tokenizer.decode([]) == ""


def test_a_long_text_has_the_same_ids_and_leaves_the_others_their_turn(tokenizer: Tokenizer) -> None:
    text = "the lord \u00e9" * 20_000
    gaps, ended, last = [0.0], threading.Event(), time.perf_counter()
    thread = threading.Thread(target=lambda: (tokenizer.encode(text), ended.set()))
    thread.start()
    began = last
    while not ended.is_set():
        time.sleep(0.001)
        last, before = time.perf_counter(), last
        gaps.append(last - before)
    thread.join()
    assert max(gaps) < (last - began) / 2, "it was not alone for most of the time"
    assert tokenizer.encode(text) == [256, *text.encode()]
    assert refusal(lambda: tokenizer.encode("a" * LONG + "\ud800")).kind == "text"


def test_an_emoji_over_several_tokens_appears_whole(tokenizer: Tokenizer) -> None:
    """Bug case B47: tokens decoded alone give replacement characters."""
    assert streamed(tokenizer, list(CAT)) == ["", "", "", "\U0001f638", ""]
    assert [tokenizer.decode([b]) for b in CAT] == ["\ufffd"] * 4  # what a naive stream shows
    assert streamed(tokenizer, [65, *CAT, 66]) == ["A", "", "", "", "\U0001f638", "B", ""]


def test_bytes_that_never_become_a_character_come_at_the_end(tokenizer: Tokenizer) -> None:
    assert streamed(tokenizer, [65, *CAT[:3]]) == ["A", "", "", "", "\ufffd"]
    assert "".join(streamed(tokenizer, [*CAT[:2], 65])) == "\ufffdA"


def test_a_replacement_character_of_the_text_itself_is_not_lost(tokenizer: Tokenizer) -> None:
    assert "".join(streamed(tokenizer, list("a\ufffdb\ufffd".encode()))) == "a\ufffdb\ufffd"


def test_special_tokens_are_silent(tokenizer: Tokenizer) -> None:
    assert streamed(tokenizer, [256, 72, 258, 105, 257]) == ["", "H", "", "i", "", ""]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 258), max_size=14) | st.text(max_size=6).map(lambda t: list(t.encode())))
@example([0xF0, 0x9F, 0xF0, 0x9F, 0x98, 0xB8])
@example([0xEF, 0xBF, 0xBD, 0xF0])
def test_the_pieces_make_up_the_whole_for_every_prefix(tokenizer: Tokenizer, ids: list[int]) -> None:
    for length in range(len(ids) + 1):
        pieces = streamed(tokenizer, ids[:length])
        assert "".join(pieces) == tokenizer.decode(ids[:length])


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Byte fallback as Llama-2 style tokenizers have it: id = byte for 0..255, then a word piece."""
    vocabulary = {f"<0x{b:02X}>": b for b in range(256)} | {"\u2581cat": 256, "s": 257}
    library = Library(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    library.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    path = tmp_path_factory.mktemp("sp") / "tokenizer.json"
    library.save(str(path))
    return Tokenizer(path)


@pytest.mark.parametrize("ids", [[256, *CAT, 257], [*CAT, *CAT], [256, *"é".encode(), 256], [256, 257, 0x41, 256]])
def test_byte_fallback_streams_whole_characters(sentencepiece: Tokenizer, ids: list[int]) -> None:
    pieces = streamed(sentencepiece, ids)
    assert "".join(pieces) == sentencepiece.decode(ids)
    assert "\ufffd" not in "".join(pieces)


def test_byte_fallback_takes_back_nothing_that_was_shown(sentencepiece: Tokenizer) -> None:
    """The decoder replaces a whole run of byte tokens when its end is invalid, long after "A" has been printed."""
    assert sentencepiece.decode([0x41, 0xF0]) == "\ufffd\ufffd"
    assert streamed(sentencepiece, [0x41, 0xF0]) == ["A", "", "\ufffd"]


# ---- files -------------------------------------------------------------------------------------------------------


def test_a_missing_tokenizer_says_what_to_do(tmp_path: Path) -> None:
    error = refusal(lambda: Tokenizer(tmp_path / "tokenizer.json"))
    assert error.kind == "no-tokenizer"
    assert "--ids" in str(error)
    assert refusal(lambda: Tokenizer(tmp_path)).kind == "no-tokenizer"


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"\xff\xfe", b'{"model": {}}', b"[" * 1000])
def test_what_is_no_tokenizer(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    error = refusal(lambda: Tokenizer(path))
    assert error.kind == "tokenizer"
    assert error.file == str(path)


@pytest.mark.parametrize("ids", [[259], [10**6]])
def test_ids_outside_the_tokenizer_decode_to_nothing(tokenizer: Tokenizer, ids: list[int]) -> None:
    """The model's vocabulary may be padded beyond the tokenizer's."""
    assert tokenizer.decode([72, *ids]) == "H"


@pytest.mark.parametrize("token", [-1, 2**32, 2**64])
def test_ids_that_no_vocabulary_has_are_typed_errors(tokenizer: Tokenizer, token: int) -> None:
    assert refusal(lambda: tokenizer.decode([token])).kind == "token-id"


def test_a_tokenizer_made_of_text() -> None:
    made = Tokenizer.from_text(byte_tokenizer())
    assert made.encode("Hé") == [256, *"Hé".encode()]
    assert streamed(made, list(CAT)) == ["", "", "", "\U0001f638", ""]


@pytest.mark.parametrize("text", ["", "{}", "null", "[" * 1000, '"\ud800"'])
def test_text_that_is_no_tokenizer(text: str) -> None:
    error = refusal(lambda: Tokenizer.from_text(text, Path("m.gguf")))
    assert (error.kind, error.file) == ("tokenizer", "m.gguf")


@pytest.mark.parametrize("version", ["\x1b[2J", "1.0\0", "9" * 5000])
def test_what_the_library_quotes_of_a_file_can_be_printed(tmp_path: Path, version: str) -> None:
    text = json.dumps({**json.loads(byte_tokenizer()), "version": version})
    (tmp_path / "tokenizer.json").write_text(text)
    for act in (lambda: Tokenizer(tmp_path / "tokenizer.json"), lambda: Tokenizer.from_text(text)):
        error = refusal(act)
        assert error.kind == "tokenizer"
        assert "Unknown tokenizer version" in str(error)
        assert len(str(error)) < 500


def test_a_tokenizer_that_cannot_split_a_text() -> None:
    """The library finds out only then that the token for what no token can say is not in the vocabulary."""
    raw = json.loads(byte_tokenizer())
    raw["model"] |= {"unk_token": "\x1b[2J", "vocab": {"b": 0}}
    tokenizer = Tokenizer.from_text(json.dumps(raw))
    assert tokenizer.encode("b")[-1] == 0
    error = refusal(lambda: tokenizer.encode("ab"))
    assert error.kind == "tokenizer"
    assert "Unk token" in str(error)
    with pytest.raises(TypeError):  # the caller's mistake stays the caller's
        tokenizer.encode(3)  # type: ignore[arg-type]


def test_half_a_character_is_no_text(tokenizer: Tokenizer) -> None:
    error = refusal(lambda: tokenizer.encode("God \udcff"))
    assert (error.kind, error.thing) == ("text", "character 5 of the text")
