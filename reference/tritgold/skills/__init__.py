"""Short tasks with one right answer each, made from a seed: what a small model can be trained on and scored by.

Every question is one line such as ``37 + 58 = 95``; the prompt ends with ``=``. One in eight of the operands of each
task is held out by a hash, so that no training with these questions ever sees it.
"""

from tritgold.skills.library import HELD_OUT_EVERY, LEVELS, TASKS, held_out, held_out_questions, training_questions
from tritgold.skills.question import Question

__all__ = ["HELD_OUT_EVERY", "LEVELS", "TASKS", "Question", "held_out", "held_out_questions", "training_questions"]
