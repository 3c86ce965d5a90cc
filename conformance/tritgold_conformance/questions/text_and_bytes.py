"""Questions to an engine beyond its activations: unpacked bytes, generated tokens, text to ids and back.

A question is data: a method of the engine and its arguments; docs/diagnosis.md describes the methods. The faulty golden
model has the same methods, so that an answer can be compared with the answer of every fault.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tritgold.decode.diffusion_presets import preset
from tritgold.decode.unmasking import Rule
from tritgold.errors import EngineError, FormatError, TritgoldError
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults import tokenizer
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.generating import diffuse, generate
from tritgold_conformance.faults.noise import noisy
from tritgold_conformance.faults.witnesses import file_cases

METHODS = ("unpack", "generate", "serve", "diffuse", "encode", "chat", "stream")
REFUSED = "refused"
TEXTS = ("the 1234 and 12345 of them", "é 😸 ﬁn \uff22", "two\n\n  lines", " it's (well) done; 3.14% ", "<bos>", "")
TOKENS = 12  # generated in one question


@dataclass(frozen=True)
class Question:
    """One question. level: ``files``, ``generated`` or ``text``. label: unique among the questions of a model."""

    label: str
    level: str
    method: str
    arguments: tuple[Any, ...]


Answer = Any  # an array, a list of ids or of texts, or REFUSED


def answer(engine: EngineUnderTest, question: Question) -> Answer:
    """The engine's answer; None if it does not have the method, REFUSED if it raises.

    Raises EngineError for an answer that comes too late or has a wrong form.
    """
    try:
        return engine.ask(question.method, *question.arguments)
    except TritgoldError as error:
        if isinstance(error, EngineError) and error.kind != "engine-failed":
            raise
        return REFUSED


def answer_of(mutant: Mutant, question: Question) -> Answer:
    """The answer of a golden model with a fault."""
    try:
        return getattr(FaultyEngine(mutant, capacity=1), question.method)(*question.arguments)
    except TritgoldError:
        return REFUSED


def same(a: Answer, b: Answer) -> bool:
    """Whether two answers are equal; floats as float32."""
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        return bool(type(a) is type(b) and a == b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
    return list(a) == list(b)


def stable(golden: Mutant, question: Question, right: Answer) -> bool:
    """Whether a right engine with float noise gives the same answer: only such answers can be judged."""
    return all(same(answer_of(noisy(golden, seed, times=4.0), question), right) for seed in (1, 2))


def questions(golden: Mutant, prompt: list[int]) -> list[Question]:
    """The questions for a model, with its own prompt; includes block diffusion if the model has a mask."""
    asked = [*unpack_questions(), *_generated(golden, prompt), *_served(prompt), *_texts(golden)]
    if golden.config.mask is not None and golden.config.block is not None:
        asked += _diffused(golden, prompt, golden.config.mask, golden.config.block)
    return asked


def unpack_questions() -> list[Question]:
    """Questions about packed bytes that are known to show faults, the first of ``packed_bytes.cases``."""
    return [Question(f"{c.format}: {c.why}", "files", "unpack", (c.format, c.data, c.shape)) for c in file_cases()]


def _generated(golden: Mutant, prompt: list[int]) -> Iterator[Question]:
    text = generate(golden, prompt, TOKENS, {"stop": []})
    used = {*prompt, *text, *golden.config.eos, golden.config.mask}
    free = [token for token in range(golden.config.vocab) if token not in used]
    cases: dict[str, dict[str, Any]] = {
        "greedy": {},
        "greedy, ended by a stop token": {"stop": _stop(golden, prompt, text, 5)},
        "greedy, all logits less 1000, repetition penalty 2": {"logit_bias": {"all": -1000}, "repetition_penalty": 2.0},
        "greedy, all logits less 1000": {"logit_bias": {"all": -1000}},
    }
    cases |= {f"drawn, top_p 0.5, seed {n}": {"temperature": 1.0, "top_p": 0.5, "seed": n} for n in (1, 2, 3)}
    # Above 1: there a temperature that comes after the filter changes the texts of most seeds, at 0.5 of hardly any.
    cases |= {f"drawn at 1.5, top_p 0.8, seed {n}": {"temperature": 1.5, "top_p": 0.8, "seed": n} for n in (1, 2, 3)}
    for label, options in cases.items():
        yield Question(label, "generated", "generate", (prompt, TOKENS, options))
    # Whatever the model says: without the bias the greedy text, without the penalty the same token again, and with a
    # penalty for each occurrence another token after the second. Few tokens, so that noise changes none of them.
    for penalty, count in ((1e9, 2), (1e3, 4)) if free else ():
        pushed = {"logit_bias": {str(free[0]): 1e6}, "stop": []}
        label = f"greedy, one logit more by a million, repetition penalty {penalty:g}"
        yield Question(label, "generated", "generate", (prompt, count, {**pushed, "repetition_penalty": penalty}))


def _served(prompt: list[int]) -> Iterator[Question]:
    for label, chunk, cached in (
        ("served in chunks of 3", 3, 0),
        ("served, all of the prompt cached", 128, len(prompt)),
        ("served, half of the prompt cached", 128, len(prompt) // 2),
    ):
        yield Question(label, "generated", "serve", (prompt, 8, {"chunk": chunk, "cached": cached}))


def _stop(golden: Mutant, prompt: list[int], text: list[int], at: int) -> list[int]:
    """Stop ids, of which one ends the text, after token ``at`` or later but before its end: an id new there.

    An id that was there before would end the text sooner, so that what comes after a stop would not be seen. It is
    neither the first nor the last of the list, nor the lowest or the highest id where the vocabulary has others, as
    many engines know one stop id alone. The others are not in the text; one of them is in the prompt, where it ends
    nothing. A text that has every id of a small vocabulary leaves no others.
    """
    new = (text[place] for place in range(at, len(text) - 1) if text[place] not in text[:place])
    end = next(new, text[at])
    unused = [token for token in range(golden.config.vocab) if token not in {*text, golden.config.mask}]
    lower = [token for token in unused if token < end] or unused
    higher = [token for token in unused if token > end] or unused
    in_prompt = [token for token in prompt if token in unused]
    known = [token for token in golden.config.eos if token in unused]
    return [*known, *lower[:1], end, *in_prompt[:1], *higher[-1:]]


@dataclass
class _Recorded(Rule):
    """Decides one token per pass, the most probable, and records all probabilities."""

    seen: list[np.ndarray]

    def count(self, surest: np.ndarray, step: int) -> int:
        self.seen.append(surest.copy())
        return 1


def _diffused(golden: Mutant, prompt: list[int], mask: int, block: int) -> Iterator[Question]:
    seen: list[np.ndarray] = []
    diffuse(golden, prompt, block, {"decode": "iterative"}, _Recorded(seen))
    middle = float(np.median(np.concatenate(seen)))
    sub = max(1, block // 2)
    whole = (prompt * (block // len(prompt) + 1))[:block]
    server = {"decode": "iterative", "threshold": middle}
    small = {"decode": "small-block", "threshold": middle, "sub_block": sub}
    v2 = {"decode": "fast-dllm-v2", "threshold": middle, "sub_block": sub}
    ended = {**server, "stop": _stop(golden, prompt, diffuse(golden, prompt, block, {**server, "stop": []}), 2)}
    reached = _reached(golden, prompt, block, seen)
    for label, options, words, count in (
        ("iterative", server, prompt, 2 * block + 3),
        ("iterative, a threshold that is reached", {**server, "threshold": reached}, prompt, block),
        ("iterative, a prompt of three blocks", server, whole * 3, block),
        ("iterative, ended by a stop token within a block", ended, prompt, block),
        ("iterative, the mask is likeliest", {**server, "logit_bias": {str(mask): 1000}}, prompt, 4),
        ("small-block", small, prompt, 2 * block),
        ("fast-dllm-v2", v2, prompt, 2 * block),
        ("fast-dllm-v2, a prompt of one block", v2, whole, block),
    ):  # fmt: skip
        yield Question(label, "generated", "diffuse", (words, count, options))


def _reached(golden: Mutant, prompt: list[int], block: int, seen: list[np.ndarray]) -> float:
    """A threshold equal to one of this model's probabilities, for which ``>=`` instead of ``>`` gives another text."""
    wrong = replace(golden, decoding={"inclusive": True})
    values = sorted({float(p) for row in seen for p in row[1:]}, reverse=True)
    for value in values:
        options = {"decode": "iterative", "threshold": value}
        if diffuse(golden, prompt, block, options) != diffuse(wrong, prompt, block, options):
            return value
    return values[0] if values else preset("iterative").rule.values[0]  # type: ignore[attr-defined]


def _texts(golden: Mutant) -> Iterator[Question]:
    """With the model's tokenizer and template, or with those of ``faults.tokenizer``; no chat if the template fails."""
    for text in TEXTS:
        yield Question(f"ids of {text!r}", "text", "encode", (text,))
    with suppress(FormatError):
        tokenizer.chat(golden, "the 12")
        yield Question("ids of a chat", "text", "chat", ("the 12",))
    known = tokenizer.tokenizer_of(golden)
    ids = [i for i in known.encode("a 😸 é") if known.decode([i])]  # special tokens have no text
    yield Question("pieces of a text with an emoji", "text", "stream", (ids,))
    within = next((ids[:end] for end in range(len(ids) - 1, 0, -1) if known.decode(ids[:end]).endswith("\ufffd")), None)
    if within:
        yield Question("pieces of a text that ends within a character", "text", "stream", (within,))
