"""The result of block diffusion: the tokens, and the cost of each pass."""

from dataclasses import dataclass
from typing import Literal

from tritgold.decode.autoregressive import StopReason

Ending = StopReason | Literal["stuck"]


@dataclass(frozen=True)
class Pass:
    """One forward pass over a block.

    block: number of the block, from 0. fed: tokens that were read. rows: rows of logits that were requested. decided:
    masks that were replaced, including those after the end of the text. commit: the pass only read the finished block,
    to store its keys and values.
    """

    block: int
    fed: int
    rows: int
    decided: int
    commit: bool = False


@dataclass(frozen=True)
class Diffused:
    """What block diffusion generated.

    tokens: without the prompt. order: for each token the number of the pass that decided it, from 0; -1: the prefill.
    reason: why the text ends; ``stuck`` if an engine with this defect would run forever. passes: without the prefill.
    """

    tokens: list[int]
    order: list[int]
    reason: Ending
    passes: tuple[Pass, ...]

    @property
    def forwards(self) -> int:
        """Number of passes over blocks, commits included, without the prompt's prefill."""
        return len(self.passes)

    @property
    def read(self) -> list[int]:
        """Number of tokens that each pass read."""
        return [done.fed for done in self.passes]

    @property
    def commits(self) -> int:
        """Number of passes that store a finished block."""
        return sum(done.commit for done in self.passes)

    @property
    def tokens_per_forward(self) -> float:
        """Generated tokens, without one decided by the prefill, / forwards; 0 without forwards."""
        return sum(number >= 0 for number in self.order) / self.forwards if self.passes else 0.0

    @property
    def forwards_per_block(self) -> tuple[int, ...]:
        """Number of forwards of each block in order, its commit included."""
        blocks = [done.block for done in self.passes]
        return tuple(blocks.count(block) for block in range(max(blocks, default=-1) + 1))


@dataclass(frozen=True)
class DiffusedBatch:
    """Several sequences decoded together. forwards: number of shared passes, each counted once."""

    results: list[Diffused]
    forwards: int
