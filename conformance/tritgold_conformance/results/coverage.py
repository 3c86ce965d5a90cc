"""Coverage: what a verdict covers, and what it does not cover. Each report has it as one line."""

from collections.abc import Sequence

import msgspec


class Coverage(msgspec.Struct, kw_only=True):
    """What was requested, answered and judged.

    ids_read: ids of the vocabulary in any text; ids_stepped: of them, those read in a single step, null in older
    reports; ids_scored: ids with a logit, or among the tokens shown. positions: read positions, from 0 on. lengths: of
    prompts read in one prefill. texts: number of different texts. prefills, steps: judged calls. pieces, sessions:
    number of sessions of these levels. repeats: how often the most repeated prompt was read. in_turns: two instances
    were read in turns. loops, text: levels that were judged. questions: of level accuracy. timed: the logits of the
    timed calls were compared. depth, seed: of the ladder. missing: levels that were not judged.
    """

    vocab: int
    context: int
    ids_read: int = 0
    ids_stepped: int | None = None
    ids_scored: int = 0
    positions: int = 0
    lengths: list[int] = []
    texts: int = 0
    prefills: int = 0
    steps: int = 0
    pieces: int = 0
    sessions: int = 0
    repeats: int = 0
    in_turns: bool = False
    loops: list[str] = []
    text: list[str] = []
    questions: int = 0
    timed: bool = False
    depth: str = ""
    seed: int = 0
    missing: list[str] = []

    @property
    def missed(self) -> tuple[float, float]:
        """The probabilities that a fault in 1 % of the prefills, or of the steps, was not met."""
        return 0.99**self.prefills, 0.99**self.steps


def coverage_line(c: Coverage) -> str:
    """One line: what was covered, what was covered partly, and what was not.

    >>> coverage_line(Coverage(vocab=9, context=8, ids_read=9, ids_scored=9, positions=8, lengths=[1, 2, 8], texts=1))
    'ids 9 of 9 read, 9 scored; positions 8 of 8; prompts of 1-2, 8; 1 text; loops none; text none; not timed'
    """
    in_steps = "" if c.ids_stepped is None else f", {c.ids_stepped:,} in steps"
    parts = [f"ids {c.ids_read:,} of {c.vocab:,} read{in_steps}, {c.ids_scored:,} scored"]
    parts.append(f"positions {c.positions:,} of {c.context:,}")
    parts.append(f"prompts of {ranges(c.lengths)}" if c.lengths else "no prompt in one prefill")
    parts.append(f"{c.texts} text{'s' * (c.texts != 1)}")
    if c.sessions or c.pieces:
        turns = "two instances in turns" if c.in_turns else "no two instances"
        parts.append(f"pieces {c.pieces}; sessions {c.sessions} (one prompt {c.repeats} times, {turns})")
    if c.prefills or c.steps:
        prefill, step = c.missed
        missed = f"a fault in 1 % of calls would be missed with {prefill:.1%} in {c.prefills:,} prefills"
        parts.append(f"{missed}, {step:.1%} in {c.steps:,} steps")
    parts.append(f"loops {', '.join(c.loops) or 'none'}; text {', '.join(c.text) or 'none'}")
    if c.questions:
        parts.append(f"{c.questions} questions (accuracy, weaker than every other level)")
    parts.append("timed calls compared" if c.timed else "not timed")
    if c.missing:
        parts.append(f"not covered: {', '.join(c.missing)}")
    return "; ".join(parts)


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, with runs as ranges.

    >>> ranges([1, 2, 3, 5, 7, 8])
    '1-3, 5, 7-8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
