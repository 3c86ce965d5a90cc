"""The ladder: texts and sessions beyond the judged text, for faults that a single text does not show.

Prompts of every length up to 33 and around 64 to 512, long states, every id of the vocabulary, prompts in pieces of
many kinds, and sessions after each other. All are prefixes of a few texts, because the golden model is slow. The ladder
depends only on the configuration, the judged text, the depth and the seed, so evidence need not store it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from tritgold.config import ModelConfig
from tritgold.weights import LINEARS
from tritgold_conformance.contract.session import Session
from tritgold_conformance.golden.run import judging_tokens

# Depth -> (golden tokens x ternary weights, repetitions of short prompts). kjv-ar has 4.7 M weights. A golden token of
# the shape of a 2B model took 0.2 s on one core in passes of 64; thorough leaves most of ten minutes to the engine.
DEPTHS: dict[str, tuple[float, int]] = {"quick": (1.4e9, 40), "default": (1.2e10, 200), "thorough": (1e12, 300)}
ONE_TEXT = "one-text"
EDGES = (64, 128, 256, 512)
SHORT = tuple(range(1, 34))
LADDER_LEVELS = ("lengths", "long_state", "vocabulary", "pieces", "sessions")
TEXT = 64  # ids in one text of the vocabulary level
PROMPTS, PROMPT = 20, 5  # number of texts that are read repeatedly, and their length
RUN = 9  # equal ids in a row
MOST_ROWS = 1 << 26  # logits that SHORT may request; if it would need more, FEW is used instead
FEW = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33)
# Lengths of the chunks of a prompt in pieces; "s5" is five single steps. Pieces of 2 to 8 after a prefix are what
# verifies drafts, and 16, 32 and 64 are where pages of a cache end.
PIECES = (
    (20, "s1", 20), ("s5", 33), (37, 23, 1, 30), (20, "s40", 20), (1, 1, 1, 16), (50, 19, "s3"), (33, 31),
    (3, 17, "s20"), (20, 2, 5, 8, 3), (16, 16, 32, "s2"), (32, "s1", 7, 4, "s3"),
)  # fmt: skip


@dataclass(frozen=True)
class Rung:
    """One session of a level: the first tokens of text number ``text``."""

    level: str
    text: int
    session: Session


@dataclass(frozen=True)
class Ladder:
    """texts: first the judged text, then the long text. seed, depth: with which it was made."""

    depth: str
    seed: int
    texts: list[list[int]]
    rungs: list[Rung] = field(default_factory=list)

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(map(len, self.texts))

    def sessions(self, steps: bool, prefills: bool, twice: bool) -> list[Session]:
        """The sessions for an engine. steps, prefills: it has these methods; twice: it can be instantiated twice."""
        asked = [r.session for r in self.rungs if steps or "step" not in r.session.calls]
        asked = [s for s in asked if prefills or "prefill" not in s.calls]
        beside = {s.beside for s in asked if s.beside}
        return asked if twice else [s for s in asked if not s.beside and s.id not in beside]


def ladder_of(config: ModelConfig, tokens: list[int], depth: str, seed: int) -> Ladder | None:
    """The ladder of a judged text. depth: one of DEPTHS; None for ONE_TEXT."""
    if depth == ONE_TEXT:
        return None
    room, repeats = DEPTHS[depth]
    room = int(room / weights(config))
    long = _long_length(config, room, depth)
    ladder = Ladder(depth, seed, [list(tokens), _long_text(config, long, seed) if long else list(tokens)])
    text = ladder.texts[1]
    for length in _lengths(config, len(text) if long else len(text) - 1):
        _add(ladder, "lengths", f"prefill of {length}", 1, [length])
    if long > 1:
        _add(ladder, "long_state", f"{len(text)} steps", 1, [f"s{len(text)}"])
    if len(text) >= 100:
        _add(ladder, "long_state", f"prefill of 20, then {len(text) - 20} steps", 1, [20, f"s{len(text) - 20}"])
    for chunks in (*PIECES, *_long_pieces(len(text))):
        if sum(_length(c) for c in chunks) <= len(text):
            _add(ladder, "pieces", _listed(chunks), 1, list(chunks))
    for number, ids in enumerate(_vocabulary(config, ladder, room - long)):
        ladder.texts.append(ids)
        _add(ladder, "vocabulary", f"text {number + 1}", len(ladder.texts) - 1, [len(ids)])
        _add(ladder, "vocabulary", f"text {number + 1} in steps", len(ladder.texts) - 1, [f"s{len(ids)}"])
    _add_sessions(ladder, config, repeats)
    return ladder


def plan(ladder: Ladder, config: ModelConfig) -> str:
    """What a ladder has room for, in words: of a large model not the whole context, and not all ids."""
    read = {token for text in ladder.texts for token in text}
    whole = ladder.longest >= config.context and len(read) == config.vocab
    limit = "" if whole else ", as many as ten minutes are planned for"
    return (
        f"{ladder.depth}: positions {ladder.longest:,} of {config.context:,} and ids {len(read):,} of {config.vocab:,} "
        f"in {len(ladder.rungs)} sessions{limit}"
    )


def _add(ladder: Ladder, level: str, what: str, text: int, chunks: list[int | str], beside: str = "") -> None:
    lengths, calls = list[int](), list[str]()
    for chunk in chunks:
        steps = isinstance(chunk, str)
        lengths += [1] * _length(chunk) if steps else [_length(chunk)]
        calls += ["step"] * _length(chunk) if steps else ["prefill"]
    tokens = ladder.texts[text][: sum(lengths)]
    session = Session(f"{level}: {what}", tokens, lengths, tuple(calls), contained=True, beside=beside)
    ladder.rungs.append(Rung(level, text, session))


def _long_pieces(count: int) -> Iterator[tuple[int | str, ...]]:
    """A long text in pieces of 64 to its end, in two halves, and with a short piece and steps after two thirds of it."""
    if count > EDGES[0]:
        yield (*[EDGES[0]] * (count // EDGES[0]), *[count % EDGES[0]] * (count % EDGES[0] > 0))
        yield (count // 2 + 1, count - count // 2 - 1)
        yield (count * 2 // 3, 5, "s3")


def _length(chunk: int | str) -> int:
    return int(str(chunk).removeprefix("s"))


def _words(chunk: int | str) -> str:
    return f"{_length(chunk)} steps" if isinstance(chunk, str) else f"prefill of {chunk}"


def _listed(chunks: tuple[int | str, ...]) -> str:
    """Chunks in words.

    >>> _listed((64, 64, 64, 1, "s3"))
    '3 prefills of 64, prefill of 1, 3 steps'
    """
    runs = [(chunk, len(list(run))) for chunk, run in groupby(chunks)]
    return ", ".join(f"{n} prefills of {c}" if n > 1 and isinstance(c, int) else _words(c) for c, n in runs)


def weights(config: ModelConfig) -> int:
    """Number of ternary weights of all matrices."""
    return config.layers * sum(int(np.prod(config.linear_shape(name))) for name in LINEARS)


def _long_length(config: ModelConfig, room: int, depth: str) -> int:
    """Tokens of the long text: the whole context, or one more than one of EDGES; 0 if there is no room for any."""
    most = min(config.context, room // (4 if depth == "default" else 2))
    if depth == "thorough" and most == config.context:
        return config.context
    if most >= config.context or most > EDGES[-1]:
        return min(config.context, EDGES[-1] + 1)
    return max((edge + 1 for edge in EDGES if edge < most), default=0)


def _long_text(config: ModelConfig, count: int, seed: int) -> list[int]:
    """BOS, a run of equal ids, one id twice with another between, BOS and EOS inside; then all ids, shuffled."""
    order = _shuffled(config.vocab, seed)
    bos = [] if config.bos is None else [config.bos]
    special = [i for i in (*config.eos, *bos, config.mask, 0, config.vocab - 1) if i is not None and i < config.vocab]
    a, b, c = order[0], order[1 % len(order)], order[2 % len(order)]
    head = [*bos, *[a] * RUN, b, c, b, *special]
    text = [*head, *order[3:]]
    while len(text) < count:
        seed += 1
        text += _shuffled(config.vocab, seed)
    return text[:count]


def _shuffled(vocab: int, seed: int) -> list[int]:
    """All ids; the order depends only on the seed, in every version of NumPy."""
    return [int(i) for i in np.random.RandomState(seed % 2**32).permutation(vocab)]


def _lengths(config: ModelConfig, most: int) -> list[int]:
    short = SHORT if sum(SHORT) * config.vocab <= MOST_ROWS else FEW
    edges = [edge + by for edge in EDGES for by in (-1, 0, 1)]
    # The longest first: its failure explains those of the others.
    return sorted({n for n in (*short, *edges, most) if n <= most}, reverse=True)


def _vocabulary(config: ModelConfig, ladder: Ladder, room: int) -> Iterator[list[int]]:
    """Texts of up to TEXT ids with the ids that are in no other text yet, as many as there is room for."""
    read = set(ladder.texts[0]) | set(ladder.texts[1])
    left = [i for i in _shuffled(config.vocab, ladder.seed + 1) if i not in read]
    size = min(TEXT, config.context)
    most = max(room, 0) // size * size
    yield from (left[start : start + size] for start in range(0, min(len(left), most), size))


def _add_sessions(ladder: Ladder, config: ModelConfig, repeats: int) -> None:
    """A short prompt after long ones, texts with equal beginnings, repeated texts, and two instances in turns."""
    judged = ladder.texts[0]
    if len(ladder.texts[1]) > len(judged):
        _add(ladder, "sessions", "a long prompt before the judged text", 1, [len(ladder.texts[1])])
    if len(judged) >= 16:  # a text of the same length with the same first half
        other = judging_tokens(len(judged), config.vocab, ladder.seed + 2)
        ladder.texts.append([*judged[: len(judged) // 2], *other[len(judged) // 2 :]])
        for number, text in enumerate((0, len(ladder.texts) - 1, 0)):
            _add(ladder, "sessions", f"texts that begin alike, {number + 1}", text, [len(judged)])
    for number in range(5):
        _add(ladder, "sessions", f"the judged text again, {number + 1}", 0, [len(judged)])
    first = len(ladder.texts)
    length = min(PROMPT, config.context)
    ids = judging_tokens(PROMPTS * length, config.vocab, ladder.seed + 3)
    prompts = PROMPTS if ladder.longest > len(judged) else 1  # otherwise the golden model would be too slow
    ladder.texts.extend(ids[n * length : (n + 1) * length] for n in range(prompts))
    for number in range(repeats):
        _add(ladder, "sessions", f"short prompt {number + 1}", first + number % prompts, [length])
    turns: tuple[list[int | str], ...] = ([3, "s2"], [1, "s4"])
    for number, chunks in enumerate(turns):
        if length == PROMPT:
            names = [f"two instances in turns, {2 * number + n}" for n in (1, 2)]
            _add(ladder, "sessions", names[0], first, chunks, beside=f"sessions: {names[1]}")
            _add(ladder, "sessions", names[1], first + (prompts > 1), chunks)
