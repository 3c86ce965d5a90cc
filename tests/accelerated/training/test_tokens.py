"""The tokenizer: made from the texts alone, special tokens first, nothing lost on the way to ids and back."""

import numpy as np
import pytest
from tiny_training import TINY, texts, tokenizer

from tritgold_xla.training import corpus, tokens
from tritgold_xla.training.corpus import Corpus
from tritgold_xla.training.tokens import (
    BOS,
    CHAT_TEMPLATE,
    EOS,
    EOT,
    MASK,
    SPECIAL,
    passage_rows,
    stream,
    streams,
    train_tokenizer,
)


def test_the_same_texts_give_the_same_tokenizer():
    assert train_tokenizer(texts(), TINY.vocab).to_str() == tokenizer().to_str()
    assert train_tokenizer(texts()[:3], TINY.vocab).to_str() != tokenizer().to_str()


def test_special_tokens_come_first_and_the_vocabulary_is_full():
    assert (BOS, EOS, EOT, MASK) == (0, 1, 2, 3)
    assert [tokenizer().token_to_id(token) for token in SPECIAL] == [0, 1, 2, 3]
    assert tokenizer().get_vocab_size() == TINY.vocab
    assert tokenizer().encode("<eot>").ids == [BOS, EOT]  # as a token, not as five characters


@pytest.mark.parametrize("text", ["", " two  spaces\n\nand lines ", "Æther — «quoted» 世界 \U0001f409", "tab\tnul\0"])
def test_text_survives_the_way_to_ids_and_back(text):
    ids = tokenizer().encode(text).ids
    assert ids[0] == BOS
    assert BOS not in ids[1:]
    assert tokenizer().decode(ids) == text


def test_a_chapter_stands_between_bos_and_eos():
    made = stream(tokenizer(), ["One.", "Æ two."])
    one, two = (tokenizer().encode(text, add_special_tokens=False).ids for text in ("One.", "Æ two."))
    assert made.ids.tolist() == [BOS, *one, EOS, BOS, *two, EOS]
    assert made.ids.dtype == np.int32
    assert made.bytes == len("One.") + len("Æ two.") + 1  # Æ is two bytes


def test_training_and_held_out_streams_are_not_swapped():
    train, held_out = streams(tokenizer(), Corpus(["a", "b"], ["c"]))
    assert tokenizer().decode(train.ids.tolist()) == "ab"
    assert tokenizer().decode(held_out.ids.tolist()) == "c"


def test_the_chat_template_closes_every_turn_and_opens_the_answer():
    sandbox = pytest.importorskip("jinja2.sandbox")
    # As transformers sets it up.
    template = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(CHAT_TEMPLATE)
    messages = [{"role": "user", "content": " Who was Moses? "}, {"role": "assistant", "content": "A prophet."}]
    whole = template.render(messages=messages, add_generation_prompt=False)
    assert whole == "User: Who was Moses?<eot>Assistant: A prophet.<eot>"
    opened = template.render(messages=messages[:1], add_generation_prompt=True)
    assert opened == "User: Who was Moses?<eot>Assistant: "
    assert whole.startswith(opened)


def test_a_row_of_a_passage_begins_with_it(monkeypatch):
    last = texts()[3].splitlines()[-1]
    monkeypatch.setattr(corpus, "OPENINGS", (texts()[5][:40], last[:30]))
    monkeypatch.setattr(tokens, "PASSAGE_TOKENS", 12)
    rows = passage_rows(tokenizer(), Corpus(texts(), []))
    assert (rows.shape, rows.dtype) == ((2, 12), np.int32)
    assert rows[:, 0].tolist() == [BOS, BOS]
    first, second = (tokenizer().decode(row.tolist()) for row in rows)
    assert texts()[5].startswith(first)
    assert last.startswith(second)
    assert min(len(first), len(second)) > 10
