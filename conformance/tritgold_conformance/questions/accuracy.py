"""The questions of level accuracy: to engines on the embedded models that answer short questions, and on no others.

Such a model is known by its trits, which are the same in every format; scales, embeddings and names need not be.
"""

from collections.abc import Container
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import TritgoldError
from tritgold.golden import trained_model
from tritgold.skills import TASKS
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.session import Session
from tritgold_conformance.questions import exam
from tritgold_conformance.questions.exam import SPARE, Answered, Item
from tritgold_conformance.questions.ladder import ONE_TEXT
from tritgold_conformance.questions.text_and_bytes import Answer, Question

MODELS = ("skills-ar", "skills-dlm")
QUESTIONS = {"quick": 2, "default": 2, "thorough": 4}  # of each task, by depth
DIFFICULTY = "middle"


@dataclass(frozen=True, eq=False)
class Exam:
    """items: held-out questions. over: ids that end an answer. vocab: ids of the model."""

    items: list[Item]
    over: set[int]
    tokenizer: Tokenizer
    vocab: int

    @property
    def labels(self) -> list[str]:
        """The names of the questions in evidence."""
        return [f"accuracy: question {number}" for number in range(1, len(self.items) + 1)]

    def sessions(self, methods: Container[str]) -> list[Session]:
        """Each question with its right answer, in one prefill or in steps; none for an engine without both methods."""
        first = next((method for method in ("prefill", "step") if method in methods), None)
        if first is None:
            return []
        asked = zip(self.labels, self.items, strict=True)
        return [exam.session(label, item, first, by_steps=False, contained=True) for label, item in asked]

    def calls(self, method: str) -> list[Question]:
        """The questions for an engine that writes its answers by ``generate``, or a server's ``write``."""
        options: tuple[dict[str, int], ...] = ({},) if method == "generate" else ()
        return [
            Question(label, "accuracy", method, (item.prompt, len(item.answer) + SPARE, *options))
            for label, item in zip(self.labels, self.items, strict=True)
        ]

    def by_logits(self, rows: np.ndarray, item: Item) -> Answered:
        """The answer in the logits of a session; wrong if they are not [tokens, vocab]."""
        shape = (len(item.prompt) + len(item.answer), self.vocab)
        return exam.by_logits(rows, item, self.over) if rows.shape == shape else Answered(False)

    def written(self, given: Answer, item: Item) -> Answered:
        """The answer in a text or in ids; wrong if it is anything else."""
        if isinstance(given, str):
            return Answered(exam.is_right(given, item.question), given)
        made = np.asarray(given)
        if made.ndim != 1 or made.dtype.kind not in "iu" or not all(0 <= token < self.vocab for token in made.tolist()):
            return Answered(False)
        return exam.by_ids(made.tolist(), item, self.over, self.tokenizer)


@lru_cache(maxsize=2)  # asking and judging an engine use the same questions
def exam_of(checkpoint: Checkpoint, depth: str, seed: int) -> Exam | str:
    """The questions to engines on a model, or the reason why there are none. depth, seed: of the ladder."""
    if depth == ONE_TEXT:
        return "one text alone was asked"
    if not any(_same_trits(checkpoint, name) for name in MODELS):
        return f"not asked: the model is neither {' nor '.join(MODELS)}, which answer questions"
    config = checkpoint.config
    try:
        text = checkpoint.tokenizer_json()
        tokenizer = None if text is None else Tokenizer.from_text(text, checkpoint.path)
        items = [] if tokenizer is None else exam.items(tokenizer, TASKS, (DIFFICULTY,), QUESTIONS[depth], seed % 2**32)
    except TritgoldError as error:
        return f"not asked: its tokenizer cannot be read: {error.message}"
    if tokenizer is None:
        return "not asked: the model has no tokenizer"
    if any(len(item.prompt) + len(item.answer) + SPARE > config.context for item in items):
        return "not asked: the questions do not fit into the context"
    if any(not 0 <= token < config.vocab for item in items for token in (*item.prompt, *item.answer)):
        return "not asked: the tokenizer has ids that the model has not"
    return Exam(items, exam.ends(tokenizer, config), tokenizer, config.vocab)


def _same_trits(checkpoint: Checkpoint, name: str) -> bool:
    """Whether a model has the trits of an embedded one. Shapes first, so that other models cost nothing."""
    ours, theirs = ([weight for _, weight in of.weights.linears()] for of in (checkpoint, _embedded(name)))
    if [weight.shape for weight in ours] != [weight.shape for weight in theirs]:
        return False
    return all(np.array_equal(a.ternary().trits, b.ternary().trits) for a, b in zip(ours, theirs, strict=True))


@cache
def _embedded(name: str) -> Checkpoint:
    return open_checkpoint(trained_model(name))
