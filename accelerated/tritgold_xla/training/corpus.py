"""The corpus: the King James Bible as Debian's ``bible-kjv`` prints it, verified by hash, split into chapters.

The text is in the public domain (the package states that its copyright has expired) and is not in the repository. To
download and print it on Debian without installing anything:

    apt-get download bible-kjv bible-kjv-text
    for file in bible-kjv*.deb; do dpkg-deb -x $file kjv; done
    echo Gen1:1-Rev22:21 | kjv/usr/bin/bible -f -d kjv/usr/lib/bible.data > kjv.txt
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tritgold.errors import FormatError

SHA256 = "ae271ac43fb594ac9f4aecb1fce69ba2e0ce2b19985ab055493d6c585d4a28b3"
HELD_OUT_EVERY = 20  # chapters: spread over the whole text, so that both parts are the same kind of text
# Where well-known passages begin, in the order of the text; each in a chapter that is learnt.
OPENINGS = (
    "In the beginning God created the heaven",
    "And God said, Let there be light",
    "Thou shalt not kill.",
    "The LORD is my shepherd;",
    "Vanity of vanities,",
    "To every thing there is a season,",
    "Blessed are the poor in spirit:",
    "Our Father which art in heaven,",
    "In the beginning was the Word,",
    "For God so loved the world,",
)
_VERSE = re.compile(r"(\d?[A-Z][A-Za-z]*)(\d+):(\d+) (.*)")
_RECIPE = "python -m tritgold_xla.training --help says how to fetch it"


@dataclass(frozen=True)
class Corpus:
    """Chapters in order, one verse per line. held_out: every HELD_OUT_EVERY-th chapter; train: the others."""

    train: list[str]
    held_out: list[str]


def read_corpus(path: Path) -> Corpus:
    """Read the printed text. Raises FormatError if the file is missing or is not exactly that text."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot be read: {error}", kind="corpus-missing", file=path, hint=_RECIPE) from error
    digest = hashlib.sha256(raw).hexdigest()
    if digest != SHA256:
        what = "is not the text that the models are trained on"
        raise FormatError(what, kind="corpus-hash", file=path, got=digest, expected=SHA256, hint=_RECIPE)
    return split(chapters(raw.decode("ascii")))


def chapters(printed: str) -> list[str]:
    r"""The output of ``bible -f``, with banner and prompt -> the text of each chapter, without references.

    >>> chapters("Hit '?' for help.\nGe1:1 In the beginning.\nGe1:2 And the earth.\nGe2:1 Thus.")
    ['In the beginning.\nAnd the earth.', 'Thus.']
    """
    found: dict[tuple[str, str], list[str]] = {}
    seen = set()
    for line in printed.splitlines():
        verse = _VERSE.fullmatch(line)
        if verse and verse.groups()[:3] not in seen:  # the banner repeats Genesis 1:1
            seen.add(verse.groups()[:3])
            found.setdefault((verse.group(1), verse.group(2)), []).append(verse.group(4).strip())
    return ["\n".join(verses) for verses in found.values()]


def split(texts: list[str]) -> Corpus:
    """Hold out every HELD_OUT_EVERY-th chapter, beginning with index HELD_OUT_EVERY // 2."""
    held = set(range(HELD_OUT_EVERY // 2, len(texts), HELD_OUT_EVERY))
    return Corpus(
        train=[text for i, text in enumerate(texts) if i not in held],
        held_out=[text for i, text in enumerate(texts) if i in held],
    )


def passages(texts: list[str]) -> list[str]:
    """For each of OPENINGS the text from its first occurrence to the end of that chapter. KeyError without one."""
    found = []
    for opening in OPENINGS:
        chapter = next((text for text in texts if opening in text), None)
        if chapter is None:
            raise KeyError(opening)
        found.append(chapter[chapter.index(opening) :])
    return found
