"""The model cards of the models of the tasks: like ``model_card``, with accuracy in the place of bits a byte."""

from collections.abc import Iterator
from typing import Any

from measure import card_parts as parts
from tritgold.checkpoint import Checkpoint
from tritgold.skills import HELD_OUT_EVERY, LEVELS, TASKS, held_out_questions

KINDS = {
    "skills-ar": "autoregressive",
    "skills-dlm": "block diffusion, adapted from skills-ar the Fast-dLLM v2 way",
}
COMMAND = "python -m tritgold_xla.training.skills FOLDER"
ABOUT = """It answers short questions that have one right answer, such as `37 + 58 =`, and nothing else. It is here so
    that a fault, a cache or a way to decode can be measured by answers that are right or wrong."""


LEARNT = "Some of these questions were learnt; the scores are of others."


def card(name: str, training: dict[str, Any], checkpoint: Checkpoint) -> Iterator[str]:
    """What the models of the tasks say of themselves, before what every card has."""
    run = training[name]
    reached = ", ".join(f"{share:.1%} after {step}" for step, share in run["held_out_accuracy"][-6:])
    yield f"# {name}"
    yield from parts.opening(KINDS[name], ABOUT, checkpoint)
    yield from _data()
    yield from parts.recipe(run, COMMAND)
    yield from parts.curve(
        run,
        f"""Held-out questions of middle difficulty, up to 64 of each task, the mean of the tasks: {reached}. By task
        and with intervals: docs/skills.md.""",
    )


def _data() -> Iterator[str]:
    yield "## Data"
    yield parts.filled(f"""
        Questions of `tritgold.skills`, made from a seed while they are asked: {len(TASKS)} tasks of three difficulties
        (a quarter easy, half middle, a quarter hard), one line each, a token a character. What is to be said is learnt,
        the question is not. One in {HELD_OUT_EVERY} of the operands of each task, by a hash, is never trained.
        `<bos>`, `<eos>`, `<eot>` and `<mask>` are ids 0 to 3, then the bytes; a question stands between `<bos>` and
        `<eos>`.""")
    rows = []
    for task in TASKS:
        found = [held_out_questions(task, level, 1) for level in range(len(LEVELS))]
        rows.append((task, *(f"`{q[0].prompt}{q[0].answer}`" if q else "" for q in found)))
    yield parts.table(("task", *LEVELS), rows)
