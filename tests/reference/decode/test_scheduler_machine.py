"""The scheduler in any order of submit, step and cancel: pages have one owner, promises hold, texts are those alone."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from serving_cases import DRAWN, OPENED, alone, assert_sound, request

from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.decode.scheduler import Scheduler
from tritgold.decode.serving_options import Request, Serving


class SchedulerMachine(RuleBasedStateMachine):
    """asked: every request by its number. said: the tokens that steps have given so far."""

    @initialize(
        max_sequences=st.integers(1, 3),
        chunk=st.sampled_from([2, 5, 128]),
        reuse=st.sampled_from([True, True, False]),
        kept=st.sampled_from([12, 100_000, 100_000]),
        page_size=st.sampled_from([1, 2, 4]),
    )
    def begin(self, max_sequences: int, chunk: int, reuse: bool, kept: int, page_size: int) -> None:
        pages = 24 // page_size  # of the longest request two do not fit
        sizes = Serving(max_sequences, chunk, reuse, kept, page_size, pages)
        self.it, self.asked = Scheduler(OPENED.weights, OPENED.config, sizes), list[Request]()
        self.said = dict[int, list[int]]()

    @rule(
        family=st.integers(0, 2),
        alike=st.sampled_from([4, 8]),
        length=st.integers(8, 12),
        tokens=st.integers(1, 9),
        how=st.sampled_from([GREEDY, DRAWN]),
    )
    def submit(self, family: int, alike: int, length: int, tokens: int, how: Sampling) -> None:
        self.asked.append(request(family, alike, length, tokens, how))
        assert self.it.submit(self.asked[-1]) == len(self.asked) - 1

    @rule()
    def step(self) -> None:
        self.read()

    @rule()
    def three_steps(self) -> None:
        for _ in range(3):
            self.read()

    @rule(number=st.integers(0, 12))
    def cancel(self, number: int) -> None:
        self.it.cancel(number)

    def read(self) -> None:
        busy, forwards = bool(self.it.waiting or self.it.running), self.it.counters.forwards
        for number, step in self.it.step():
            self.said.setdefault(number, []).append(step.token)
        assert self.it.counters.forwards == forwards + busy, "one pass a step, and never idle while somebody waits"

    @invariant()
    def pages_and_promises(self) -> None:
        if hasattr(self, "it"):
            assert_sound(self.it)
            ended = set(self.it.outcomes)
            alive = [sequence.number for sequence in [*self.it.running, *self.it.waiting]]
            assert sorted([*alive, *ended]) == list(range(len(self.asked)))
            assert alive == sorted(alive), "in the order of arrival"

    def teardown(self) -> None:
        if not hasattr(self, "it"):
            return
        while self.it.waiting or self.it.running:
            self.read()
        assert_sound(self.it)
        for number, outcome in self.it.outcomes.items():
            tokens, reason, _ = alone(self.asked[number])
            assert outcome.tokens == self.said.get(number, [])
            assert outcome.tokens == tokens[: len(outcome.tokens)]
            assert outcome.reason in (reason, "cancelled")
            assert outcome.reason == "cancelled" or outcome.tokens == tokens
        if self.it.radix is not None:
            self.it.radix.evict(self.it.pool.pages)
        assert self.it.pool.free_pages == self.it.pool.pages, "no page is lost"


SchedulerMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, derandomize=True)
test_any_order_of_operations = SchedulerMachine.TestCase
