"""Scores of greedy decoding: from logits over question and answer, or from what an engine writes.

Greedy decoding gives the right answer if and only if each of its tokens has the largest logit after the tokens before
it (the smallest id, if several have it). So one prefill over question and answer scores an engine that shows logits,
and a program needs one run for all questions. Servers and engines that only generate write their answers; of engines
that show no more than the next token, each token of the answer is asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.questions import exam
from tritgold_conformance.questions.exam import SPARE, Answered, Item
from tritgold_conformance.questions.request_batch import Behaviour, RequestBatch

OnProgress = Callable[[int], None]


def score(
    engine: EngineUnderTest,
    asked: Sequence[Item],
    config: ModelConfig,
    tokenizer: Tokenizer,
    on_progress: OnProgress = lambda _: None,
    by_steps: bool = False,
) -> list[Answered]:
    """An answer for each item. on_progress: receives the number of answers so far.

    by_steps: if the engine has prefill and step, the answer is read token by token, as in decoding, so that its KV
    cache is tested too.

    Raises EngineError if the engine has none of prefill, step, write, generate and complete, or fails.
    """
    if engine.has("prefill") or engine.has("step"):
        return counted(_by_logits(engine, asked, config, tokenizer, by_steps), on_progress)
    if engine.has("write"):
        return counted(_written(engine, asked), on_progress)
    if engine.has("generate"):
        return counted(_generated(engine, asked, config, tokenizer), on_progress)
    if engine.has("complete"):
        return counted(_completed(engine, asked, config, tokenizer), on_progress)
    expected = "one of prefill, step, generate, complete, or a server"
    raise EngineError("writes no text", kind="engine-protocol", thing=f"engine {engine.name}", expected=expected)


def counted(answers: Iterable[Answered], on_progress: OnProgress) -> list[Answered]:
    """All answers; on_progress receives their number after each."""
    found = list[Answered]()
    for answer in answers:
        found.append(answer)
        on_progress(len(found))
    return found


def _by_logits(
    engine: EngineUnderTest, asked: Sequence[Item], config: ModelConfig, tokenizer: Tokenizer, by_steps: bool
) -> Iterator[Answered]:
    first = "prefill" if engine.has("prefill") else "step"
    by_steps = by_steps and engine.has("step")
    sessions = [exam.session(f"question-{number}", item, first, by_steps) for number, item in enumerate(asked)]
    engine.prepare(RequestBatch(sessions=sessions), config)
    over = exam.ends(tokenizer, config)
    for item, session in zip(asked, sessions, strict=True):
        rows = engine.read([session])[0]
        if rows is None and session is sessions[0]:  # a program: only its answers say what it has
            yield from _without_logits(engine, asked, config, tokenizer)
            return
        if rows is None:
            raise EngineError("shows no logits", kind="engine-output", thing=f"engine {engine.name}")
        yield exam.by_logits(rows, item, over)


def _without_logits(
    engine: EngineUnderTest, asked: Sequence[Item], config: ModelConfig, tokenizer: Tokenizer
) -> Iterator[Answered]:
    if engine.has("generate"):
        made = list(_generated(engine, asked, config, tokenizer))
        if engine.has("generate"):  # still: it has answered
            yield from made
            return
    if not engine.has("complete"):
        raise EngineError("shows no logits and writes no text", kind="engine-output", thing=f"engine {engine.name}")
    yield from _completed(engine, asked, config, tokenizer)


def _completed(
    engine: EngineUnderTest, asked: Sequence[Item], config: ModelConfig, tokenizer: Tokenizer
) -> Iterator[Answered]:
    """By the next token after each prefix of question and answer: one run of a program for each question."""
    over = exam.ends(tokenizer, config)
    for item in asked:
        tokens = [*item.prompt, *item.answer]
        engine.prepare(RequestBatch(text=tokens), config)
        found = [engine.complete(tokens[:end]) for end in range(len(item.prompt), len(tokens) + 1)]
        if None in found:
            raise EngineError("shows no next token", kind="engine-output", thing=f"engine {engine.name}")
        chosen = [answer[0] for answer in found if answer is not None]
        yield exam.by_choices(chosen, item, over)


def _written(engine: EngineUnderTest, asked: Sequence[Item]) -> Iterator[Answered]:
    for item in asked:
        text = engine.ask("write", item.prompt, len(item.answer) + SPARE)
        if not isinstance(text, str):
            raise EngineError("writes no text", kind="engine-output", thing=f"engine {engine.name}", got=repr(text))
        yield Answered(exam.is_right(text, item.question), text)


def _generated(
    engine: EngineUnderTest, asked: Sequence[Item], config: ModelConfig, tokenizer: Tokenizer
) -> Iterator[Answered]:
    arguments: list[tuple[Any, ...]] = [(item.prompt, len(item.answer) + SPARE, {}) for item in asked]
    engine.prepare(RequestBatch(behaviours=[Behaviour("generate", given) for given in arguments]), config)
    over = exam.ends(tokenizer, config)
    for item, given in zip(asked, arguments, strict=True):
        made = engine.ask("generate", *given)
        yield exam.by_ids([] if made is None else list(made), item, over, tokenizer)
