"""Byte-level BPE trained on the training chapters, and the corpus as one stream of ids."""

from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tritgold_xla.training.corpus import Corpus, passages

SPECIAL = ("<bos>", "<eos>", "<eot>", "<mask>")
BOS, EOS, EOT, MASK = range(len(SPECIAL))
PASSAGE_TOKENS = 80  # tokens of a passage that is learnt by heart, two or three verses

# One turn per message, ended by <eot>; the generation prompt begins the assistant's turn. The tokenizer adds BOS.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}<eot>{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)


@dataclass(frozen=True, eq=False)
class Stream:
    """Token ids, int32: the chapters, each between BOS and EOS. bytes: length of their text in UTF-8."""

    ids: np.ndarray
    bytes: int


def train_tokenizer(texts: list[str], vocab: int) -> Tokenizer:
    """A byte-level BPE of ``vocab`` entries, special tokens first. The same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    return tokenizer


def stream(tokenizer: Tokenizer, texts: list[str]) -> Stream:
    """The texts as one stream of ids."""
    pieces: list[int] = []
    for text in texts:
        pieces += [*tokenizer.encode(text).ids, EOS]  # encode adds BOS
    return Stream(np.array(pieces, np.int32), sum(len(text.encode()) for text in texts))


def streams(tokenizer: Tokenizer, corpus: Corpus) -> tuple[Stream, Stream]:
    """The streams of the training part and of the held-out part."""
    return stream(tokenizer, corpus.train), stream(tokenizer, corpus.held_out)


def passage_rows(tokenizer: Tokenizer, corpus: Corpus) -> np.ndarray:
    """int32 [passages, PASSAGE_TOKENS]: BOS and the first tokens of a well-known passage each."""
    return np.stack(
        [np.array(tokenizer.encode(text).ids[:PASSAGE_TOKENS], np.int32) for text in passages(corpus.train)]
    )
