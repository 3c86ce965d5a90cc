"""What block diffusion did: the tokens, and pass by pass what they cost."""

from dataclasses import dataclass
from typing import Literal

from tritgold.decode.autoregressive import StopReason

Ending = StopReason | Literal["stuck"]


@dataclass(frozen=True)
class Pass:
    """One forward pass over a block.

    block: number of the block, from 0. fed: tokens that were read. rows: logits that were asked for. decided: masked
    tokens that became others, those after the end of the text among them. commit: it read the finished block only, to
    keep its keys and values.
    """

    block: int
    fed: int
    rows: int
    decided: int
    commit: bool = False


@dataclass(frozen=True)
class Diffused:
    """What block diffusion generated.

    tokens: without the prompt. order: for each the number of the pass that decided it, from 0; -1 for the prefill.
    reason: why the text ends; ``stuck`` is an engine with a defect that would run forever. passes: all but the prefill.
    """

    tokens: list[int]
    order: list[int]
    reason: Ending
    passes: tuple[Pass, ...]

    @property
    def forwards(self) -> int:
        """Passes over a block, those that keep one included, the prompt's prefill not."""
        return len(self.passes)

    @property
    def commits(self) -> int:
        """Passes that keep a finished block."""
        return sum(done.commit for done in self.passes)

    @property
    def tokens_per_forward(self) -> float:
        """Generated tokens, without one of the prefill, by forwards; 0 without any."""
        return sum(number >= 0 for number in self.order) / self.forwards if self.passes else 0.0

    @property
    def forwards_per_block(self) -> tuple[int, ...]:
        """Forwards of each block in turn, the one that keeps it included."""
        blocks = [done.block for done in self.passes]
        return tuple(blocks.count(block) for block in range(max(blocks, default=-1) + 1))


@dataclass(frozen=True)
class DiffusedBatch:
    """Several sequences decoded together. forwards: passes in which every sequence with something to do took part."""

    results: list[Diffused]
    forwards: int
