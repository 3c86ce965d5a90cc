"""One engine, loaded once and judged with inputs of several lengths, for the suite.

The engine runs in another process (``engines.host``, a program, a server), so its crash does not end pytest.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from tritgold.errors import EngineError, TritgoldError
from tritgold_conformance.commands.judge_request import JudgeRequest, Opened
from tritgold_conformance.golden.run import judging_tokens
from tritgold_conformance.judging.check import check
from tritgold_conformance.questions.ladder import ONE_TEXT, ladder_of
from tritgold_conformance.rendering.escaping import clean
from tritgold_conformance.results.report import Report

LADDER_AT = 40  # the input length with which the ladder is used


@dataclass(frozen=True)
class EngineJudge:
    """opened: None if model or engine could not be opened; ``problem`` says why."""

    request: JudgeRequest
    opened: Opened | None
    problem: str = ""

    def report(self, count: int) -> Report | str:
        """The judgement over ``count`` tokens, or the reason why the model cannot read so many.

        Raises EngineError, kind ``not-judged``, if the engine could not be judged.
        """
        if self.opened is None:
            raise EngineError(self.problem, kind="not-judged")
        config, request = self.opened.checkpoint.config, self.request
        if count > config.context:
            return f"the model has {config.context} positions"
        tokens = self.opened.engine.judged_text or judging_tokens(count, config.vocab, seed=1)
        try:
            depth = request.depth or "default" if count == LADDER_AT else ONE_TEXT
            ladder, name = ladder_of(config, tokens, depth, 1), request.model_name
            golden, options = replace(self.opened, tokens=tokens).golden_run(), request.options()
            declared = self.opened.as_declared
            return check(golden, self.opened.engine, name, False, options, ladder=ladder, as_declared=declared)[0]
        except TritgoldError as error:
            raise EngineError(clean(str(error)), kind="not-judged") from None


@contextmanager
def engine_judge(request: JudgeRequest) -> Iterator[EngineJudge]:
    """The engine opened on its model for inputs of at most ``request.tokens``; closed after the block."""
    with ExitStack() as stack:
        try:
            judge = EngineJudge(request, stack.enter_context(request.opened()))
        except TritgoldError as error:
            judge = EngineJudge(request, None, clean(str(error)))
        yield judge
