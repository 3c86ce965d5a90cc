"""One engine, loaded once and judged over inputs of several lengths, for the suite.

The engine runs elsewhere (``engines.host``, a program, a server), so whatever it does to its process, pytest goes on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import EngineError, TritgoldError
from tritgold_conformance.commands import model_input
from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
from tritgold_conformance.judging.check import check
from tritgold_conformance.questions.ladder import ONE_TEXT, ladder_of
from tritgold_conformance.rendering.escaping import clean
from tritgold_conformance.results.report import Report

LADDER_AT = 40  # the length of the input with which an engine is asked more than one text


@dataclass(frozen=True)
class JudgeRequest:
    """What is judged, by which options of ``tritgold check``. capacity: the longest input, tokens."""

    engine: str
    model: str | None
    mode: str | None
    linear_class: str | None
    timeout: int | None
    depth: str
    capacity: int

    def options(self) -> tuple[str, ...]:
        """The options, for a command to paste."""
        given = {"--linear-class": self.linear_class, "--timeout": self.timeout, "--mode": self.mode}
        return tuple(word for name, value in given.items() if value is not None for word in (name, str(value)))


@dataclass
class EngineJudge:
    """checkpoint, engine: None, and ``problem`` why, where one of them could not be opened."""

    request: JudgeRequest
    checkpoint: Checkpoint | None = None
    engine: EngineUnderTest | None = None
    problem: str = ""

    def report(self, count: int) -> Report | str:
        """The judgement over ``count`` tokens, or why the model has no such input.

        Raises EngineError, kind ``not-judged``, where there is none.
        """
        if self.checkpoint is None or self.engine is None:
            raise EngineError(self.problem, kind="not-judged")
        context = self.checkpoint.config.context
        if count > context:
            return f"the model has {context} positions"
        tokens = judging_tokens(count, self.checkpoint.config.vocab, seed=1)
        name, options = model_input.model_name(self.request.model), self.request.options()
        try:
            depth = self.request.depth if count == LADDER_AT else ONE_TEXT
            ladder = ladder_of(self.checkpoint.config, tokens, depth, 1)
            golden = GoldenRun.of(self.checkpoint, tokens, named_arithmetic(self.request.mode or self.engine.mode))
            return check(golden, self.engine, name, timed=False, options=options, ladder=ladder)[0]
        except TritgoldError as error:
            raise EngineError(clean(str(error)), kind="not-judged") from None


@contextmanager
def engine_judge(request: JudgeRequest) -> Iterator[EngineJudge]:
    """The engine opened on its model, which is there as long as the block."""
    judge = EngineJudge(request)
    with model_input.model_path(request.model) as path:
        try:
            judge.checkpoint = open_checkpoint(path, request.linear_class)
            seconds = request.timeout or DEFAULT_TIMEOUT
            ladder = ladder_of(judge.checkpoint.config, [0] * LADDER_AT, request.depth, 1)
            room = max(request.capacity, 0 if ladder is None else ladder.longest)
            judge.engine = load_engine(request.engine, path, judge.checkpoint, room, seconds)
        except TritgoldError as error:
            judge.problem = clean(str(error))
        yield judge
