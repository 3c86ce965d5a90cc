"""One engine, loaded once and judged with inputs of several lengths, for the suite.

The engine runs in another process (``engines.host``, a program, a server), so its crash does not end pytest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError, TritgoldError
from tritgold_conformance.commands import model_input
from tritgold_conformance.commands.judge_request import JudgeRequest
from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
from tritgold_conformance.judging.check import check
from tritgold_conformance.policies import named_policy
from tritgold_conformance.questions.ladder import ONE_TEXT, ladder_of
from tritgold_conformance.rendering.escaping import clean
from tritgold_conformance.results.report import Report

LADDER_AT = 40  # the input length with which the ladder is used


@dataclass
class EngineJudge:
    """checkpoint, engine: None if they could not be opened; ``problem`` says why."""

    request: JudgeRequest
    checkpoint: Checkpoint | None = None
    engine: EngineUnderTest | None = None
    problem: str = ""

    def report(self, count: int) -> Report | str:
        """The judgement over ``count`` tokens, or the reason why the model cannot read so many.

        Raises EngineError, kind ``not-judged``, if the engine could not be judged.
        """
        if self.checkpoint is None or self.engine is None:
            raise EngineError(self.problem, kind="not-judged")
        context = self.checkpoint.config.context
        if count > context:
            return f"the model has {context} positions"
        tokens = self.engine.judged_text or judging_tokens(count, self.checkpoint.config.vocab, seed=1)
        request = self.request
        try:
            depth = request.depth or "default" if count == LADDER_AT else ONE_TEXT
            ladder = ladder_of(self.checkpoint.config, tokens, depth, 1)
            arithmetic = named_arithmetic(request.mode or self.engine.mode)
            policy = named_policy(request.policy or self.engine.policy)
            golden = GoldenRun.of(self.checkpoint, tokens, arithmetic, policy)
            options = request.options()
            declared = request.policy is None
            return check(golden, self.engine, request.model_name, False, options, ladder=ladder, as_declared=declared)[
                0
            ]
        except TritgoldError as error:
            raise EngineError(clean(str(error)), kind="not-judged") from None


@contextmanager
def engine_judge(request: JudgeRequest) -> Iterator[EngineJudge]:
    """The engine opened on its model for inputs of at most ``request.tokens``; closed after the block."""
    judge = EngineJudge(request)
    with model_input.model_path(request.model) as path:
        try:
            judge.checkpoint = request.reading.open(path)
            seconds = request.timeout or DEFAULT_TIMEOUT
            ladder = ladder_of(judge.checkpoint.config, [0] * LADDER_AT, request.depth or "default", 1)
            room = max(request.tokens, 0 if ladder is None else ladder.longest)
            policy = None if request.policy is None else named_policy(request.policy)
            judge.engine = load_engine(request.engine, path, judge.checkpoint, room, seconds, policy=policy)
        except TritgoldError as error:
            judge.problem = clean(str(error))
        yield judge
