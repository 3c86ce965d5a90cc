"""Which tokens a pass of block diffusion reads: the fewest that give its logits, by attention and cache policy.

With causal attention the exact rule is: a pass begins no later than at the first token that was a mask in the previous
pass. The tokens before it have not changed since they were read, and keys and values do not depend on later tokens.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from tritgold.decode.diffusion_options import Defect, Diffusion
from tritgold.options import Sizes


class Span(NamedTuple):
    """The tokens first .. stop - 1, which a pass reads; they see the tokens below ``end``."""

    first: int
    stop: int
    end: int


class BlockReads:
    """The state of the cache for one sequence's current block.

    start, stop: the block's range, as far as the context allows. canvas: index after the last token that can be read.
    committed_until: below it, keys and values are those of the final tokens, or (causal, with a defect) treated as
    such. opened: whether a pass over the whole block was made. steps: number of passes of each sub-block.
    """

    def __init__(self, options: Diffusion, sizes: Sizes) -> None:
        self.options, self.sizes = options, sizes
        self.start = self.stop = self.canvas = self.committed_until = 0
        self.opened, self.steps = False, list[int]()

    def open(self, start: int, stop: int, canvas: int) -> None:
        """Begin a new block, with indices as in the class."""
        self.start, self.stop, self.canvas, self.opened = start, stop, canvas, False
        self.steps = [0] * (self.sizes.block // self.sizes.sub_block)
        if self.options.defects & {Defect.NO_COMMIT, Defect.COMPACT_FEED}:
            self.committed_until = max(self.committed_until, start - 1)

    def spans(self, sub_block: int, masked: Collection[int], whole: bool) -> list[Span]:
        """The tokens to read in a pass that decides tokens of a sub-block.

        masked: indices of the block's masks. whole: read the whole block even if the options allow the sub-block only.
        """
        o, stop = self.options, self.stop
        first = self.start + sub_block * self.sizes.sub_block
        last = min(first + self.sizes.sub_block, stop)
        if o.cache == "none" or (o.attention == "full" and not self.opened):
            return [Span(0, self.canvas, self.canvas)]
        if o.attention == "full":
            return [Span(self.start, stop if o.cache == "dual" else self.canvas, self.canvas)]
        if o.attention == "block":
            return [Span(self.start, stop, stop) if o.cache == "prefix" or whole else Span(first, last, stop)]
        if Defect.COMPACT_FEED in o.defects:
            if self.steps[sub_block] and first not in masked:
                return _runs([at - o.shift for at in sorted(masked) if first <= at < last])
            return [Span(first - o.shift, stop, stop)]
        begin = min(masked) - o.shift
        if not (Defect.STALE_PREFIX in o.defects and self.opened):
            begin = min(begin, self.committed_until)
        return [Span(begin, last if o.cache == "dual" else stop, last if o.cache == "dual" else stop)]

    def has_read(self, sub_block: int, masked: Collection[int]) -> None:
        """Note a pass. masked: indices of the block's masks at the time of the pass."""
        self.opened, self.committed_until = True, min(masked)
        self.steps[sub_block] += 1

    def commit(self) -> Span:
        """The tokens to read in the pass that stores the finished block."""
        stop = self.stop
        if self.options.cache == "none":
            return Span(0, stop, stop)
        first = self.start if self.options.attention == "block" else min(self.committed_until, stop - 1)
        self.committed_until = stop
        return Span(first, stop, stop)


def _runs(indices: list[int]) -> list[Span]:
    """Runs of consecutive indices; with causal attention one run can be read after the other.

    >>> [(span.first, span.stop) for span in _runs([3, 4, 7])]
    [(3, 5), (7, 8)]
    """
    cuts = [0, *(n for n in range(1, len(indices)) if indices[n] != indices[n - 1] + 1), len(indices)]
    return [Span(indices[a], indices[b - 1] + 1, indices[b - 1] + 1) for a, b in pairwise(cuts)]
