"""How a mutant converts text to ids and back: a small tokenizer, with the switches of ``Mutant.text``."""

import unicodedata

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as RawTokenizer

from tritgold.tokenizer import TextStream, Tokenizer
from tritgold_conformance.chat.template import chat_template
from tritgold_conformance.faults.fault import Mutant

BOS = "<bos>"


def witness_tokenizer(digits: int = 3) -> Tokenizer:
    """Byte-level BPE that splits digits into groups of at most ``digits`` and merges within them; <bos> is added."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # With this order of merges, groups of three give 123 and 4, and digits that are not split give 1234.
    merges = [("1", "2"), ("3", "4"), ("12", "34"), ("12", "3"), ("4", "5"), ("t", "h"), ("th", "e"), ("Ġ", "the")]
    names = [*alphabet, *(a + b for a, b in merges), BOS]
    raw = RawTokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{digits}}}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(BOS, special=True)])
    raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))])
    return Tokenizer.from_text(raw.to_str())


def tokenizer_of(s: Mutant, digits: int = 3) -> Tokenizer:
    """The checkpoint's own tokenizer; without one, ``witness_tokenizer``."""
    own = s.checkpoint.tokenizer_json()
    return witness_tokenizer(digits) if own is None else Tokenizer.from_text(own)


def encode(s: Mutant, text: str) -> list[int]:
    """Ids of a text, with one BOS."""
    switches = s.text
    tokenizer = tokenizer_of(s, switches.get("digits", 3))
    if switches.get("stripped"):
        text = " ".join(text.split())
    if switches.get("normalised"):
        text = unicodedata.normalize("NFKC", text)
    ids = tokenizer.encode((" " if switches.get("leading_space") else "") + text)
    return {"doubled": ids[:1] + ids, "missing": ids[1:]}.get(switches.get("bos", ""), ids)


def chat(s: Mutant, message: str) -> list[int]:
    """Ids of a user's message in the model's own template; without one, in ``User: ...\\nAssistant: ``.

    The model's template writes all special tokens itself. Raises FormatError if the template fails.
    """
    missing = bool(s.text.get("template_space_missing"))
    tokenizer = tokenizer_of(s)
    template = chat_template(s.checkpoint, tokenizer)
    if template is None:
        return encode(s, f"User: {message}\nAssistant:{'' if missing else ' '}")
    text = template.text([{"role": "user", "content": message}])
    return tokenizer.encode(text.rstrip() if missing else text, special=False)


def stream(s: Mutant, ids: list[int]) -> list[str]:
    """The piece of text that each next id adds, and the rest at the end; empty pieces are left out."""
    tokenizer = tokenizer_of(s)
    if s.text.get("alone"):
        return [piece for i in ids if (piece := tokenizer.decode([i]))]
    growing = TextStream(tokenizer)
    pieces = [growing.push(i) for i in ids]
    return [piece for piece in (pieces if s.text.get("cut_off") else [*pieces, growing.finish()]) if piece]
