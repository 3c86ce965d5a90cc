"""Scores one token after the other: from logits over question and answer, or from what an engine writes.

Greedy decoding gives the right answer exactly where every token of it has the largest logit after the tokens before it
(the smallest id where several have it). So one prefill over question and answer scores an engine that shows logits, and
a program needs one run for all questions. A server, or an engine that only generates, writes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.contract.session import Session
from tritgold_conformance.questions.request_batch import Behaviour, RequestBatch
from tritgold_conformance.scoring.exam import SPARE, Answered, Item, ends, is_right

OnProgress = Callable[[int], None]


def score(
    engine: EngineUnderTest,
    asked: Sequence[Item],
    config: ModelConfig,
    tokenizer: Tokenizer,
    on_progress: OnProgress = lambda _: None,
    by_steps: bool = False,
) -> list[Answered]:
    """An answer for each item. on_progress: hears how many are answered.

    by_steps: the answer is read token by token, as decoding reads it, where the engine has both prefill and step: then
    what its KV cache does counts as well.

    Raises EngineError where the engine shows no logits, writes nothing and generates nothing, or fails.
    """
    if engine.has("prefill") or engine.has("step"):
        return _by_logits(engine, asked, config, tokenizer, on_progress, by_steps)
    if engine.has("write"):
        return _written(engine, asked, on_progress)
    if engine.has("generate"):
        return _generated(engine, asked, config, tokenizer, on_progress)
    expected = "one of prefill, step, generate, or a server"
    raise EngineError("writes no text", kind="engine-protocol", thing=f"engine {engine.name}", expected=expected)


def _by_logits(
    engine: EngineUnderTest,
    asked: Sequence[Item],
    config: ModelConfig,
    tokenizer: Tokenizer,
    on_progress: OnProgress,
    by_steps: bool,
) -> list[Answered]:
    first = "prefill" if engine.has("prefill") else "step"
    steps = first == "step" or (by_steps and engine.has("step"))
    sessions = [_session(number, item, first, steps) for number, item in enumerate(asked)]
    engine.prepare(RequestBatch(sessions=sessions), config)
    over, found = ends(tokenizer, config), list[Answered]()
    for item, session in zip(asked, sessions, strict=True):
        rows = engine.read([session])[0]
        if rows is None:
            raise EngineError("shows no logits", kind="engine-output", thing=f"engine {engine.name}")
        chosen = np.argmax(rows[len(item.prompt) - 1 :], axis=1).tolist()
        found.append(Answered(chosen[:-1] == item.answer and chosen[-1] in over))
        on_progress(len(found))
    return found


def _session(number: int, item: Item, first: str, steps: bool) -> Session:
    """One prefill of all; or the prompt by ``first`` and the answer by steps."""
    name, tokens = f"question-{number}", [*item.prompt, *item.answer]
    if not steps:
        return Session(name, tokens, [len(tokens)], ("prefill",))
    prompt = [len(item.prompt)] if first == "prefill" else [1] * len(item.prompt)
    calls = (first,) * len(prompt) + ("step",) * len(item.answer)
    return Session(name, tokens, [*prompt, *[1] * len(item.answer)], calls)


def _written(engine: EngineUnderTest, asked: Sequence[Item], on_progress: OnProgress) -> list[Answered]:
    found = list[Answered]()
    for item in asked:
        text = engine.ask("write", item.prompt, len(item.answer) + SPARE)
        if not isinstance(text, str):
            raise EngineError("writes no text", kind="engine-output", thing=f"engine {engine.name}", got=repr(text))
        found.append(Answered(is_right(text, item.question), text))
        on_progress(len(found))
    return found


def _generated(
    engine: EngineUnderTest,
    asked: Sequence[Item],
    config: ModelConfig,
    tokenizer: Tokenizer,
    on_progress: OnProgress,
) -> list[Answered]:
    arguments: list[tuple[Any, ...]] = [(item.prompt, len(item.answer) + SPARE, {}) for item in asked]
    engine.prepare(RequestBatch(behaviours=[Behaviour("generate", given) for given in arguments]), config)
    over, found = ends(tokenizer, config), list[Answered]()
    for item, given in zip(asked, arguments, strict=True):
        made = engine.ask("generate", *given)
        found.append(by_ids([] if made is None else list(made), item, over, tokenizer))
        on_progress(len(found))
    return found


def by_ids(made: list[int], item: Item, over: set[int], tokenizer: Tokenizer, forwards: int = 0) -> Answered:
    """What ids that were generated are worth: those before the first that ends an answer."""
    end = next((n for n, token in enumerate(made) if token in over), len(made))
    text = tokenizer.decode(made[:end])
    return Answered(end < len(made) and is_right(text, item.question), text, len(made), forwards)
