"""One question with its one right answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """key: what the split is decided by: the operands, written so that the same fact has the same key."""

    key: str
    asked: str
    right: str

    @property
    def prompt(self) -> str:
        """What a model is given: ``37 + 58 =``."""
        return f"{self.asked} ="

    @property
    def answer(self) -> str:
        """What it has to say: a space, the answer, and then the end of sequence."""
        return f" {self.right}"
