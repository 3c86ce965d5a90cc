"""The core: what each request gets is what it would get alone, and nothing is left behind."""

import os
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest
from served import Heard, alone, opened, random_request

from tritgold.decode.sampling import Sampling
from tritgold.decode.serving_options import Request, Serving
from tritgold.errors import ConfigError, EngineError
from tritgold.model import forward
from tritgold_conformance.serving.choosing import Choosing
from tritgold_conformance.serving.core import Core, FullError, StoppingError
from tritgold_conformance.serving.served_models import PAGE, ReferenceModel, reference_model

MIXES = int(os.environ.get("TRITGOLD_SERVED_MIXES", "8"))  # 1,000 have been run
A_POSITION = 2 * 1 * 16 * 4  # bytes of keys and values of the smallest model
ENOUGH = 1 << 20


def model(**sizes: int) -> ReferenceModel:
    memory = sizes.pop("memory", ENOUGH)
    return reference_model(opened(), Serving(**sizes), memory)


@pytest.fixture
def core() -> Iterator[Core]:
    made = Core(lambda: model(max_sequences=3, chunk=5), places=8)
    yield made
    made.stop(0)
    made.join(10)
    assert made.held == 0


def said_alone(request: Request) -> tuple[list[int], str]:
    stop = None if request.stop is None else tuple(request.stop)
    return alone(tuple(request.prompt), request.max_tokens, request.sampling, stop)


@pytest.mark.parametrize("seed", range(2))
def test_an_answer_does_not_depend_on_what_else_is_served(seed: int) -> None:
    for mix in range(MIXES // 2):
        draw = random.Random(1000 * seed + mix)
        sizes = {"max_sequences": draw.choice([1, 2, 5]), "chunk": draw.choice([1, 4, 16])}
        served = model(**sizes, memory=A_POSITION * 64 * draw.randint(2, 5))
        requests = [random_request(draw) for _ in range(draw.randint(2, 7))]
        coming, tokens, cancelled = list(enumerate(requests)), dict[int, list[int]](), set[int]()
        numbers: dict[int, int] = {}
        while coming or any(served.unfinished):
            while coming and draw.random() < 0.5:
                which, request = coming.pop(0)
                numbers[served.submit(request)] = which
            for number, step in served.step():
                tokens.setdefault(numbers[number], []).append(step.token)
            if draw.random() < 0.1 and numbers:
                gone = draw.choice(list(numbers))
                if gone not in served.outcomes:
                    cancelled.add(numbers[gone])
                served.cancel(gone)
        assert served.positions_in_use == 0
        assert served.radix is not None
        assert served.pool.free_pages + served.radix.cached_pages == served.pool.pages, "no page is lost"
        for number, which in numbers.items():
            expected, reason = said_alone(requests[which])
            got = tokens.get(which, [])
            if which in cancelled:
                assert got == expected[: len(got)]
            else:
                assert (got, served.outcomes[number].reason) == (expected, reason)


def test_a_thread_serves_all_that_come(core: Core) -> None:
    draw = random.Random(3)
    for _ in range(2):
        heard = [Heard(random_request(draw)) for _ in range(8)]
        core.submit([h.job for h in heard])
        for h in heard:
            h.wait(core)
            assert [e.kind for e in h.events] == ["accepted", *["token"] * len(h.tokens), "ended"]
            assert (h.tokens, h.events[-1].reason) == said_alone(h.job.request)
    assert (core.held, core.model.unfinished, core.model.positions_in_use) == (0, (0, 0), 0)


def test_one_that_goes_away_frees_its_place(core: Core) -> None:
    request = Request(tuple(range(9)), 50, stop=())
    heard = [Heard(request) for _ in range(8)]
    core.submit([h.job for h in heard])
    with pytest.raises(FullError) as full:
        core.submit([Heard(request).job])
    assert 1 <= full.value.seconds <= 60
    core.cancel([h.job for h in heard[:7]])
    for h in heard[:7]:
        assert h.wait(core).events[-1].reason == "cancelled"
    assert heard[7].wait(core).tokens == said_alone(request)[0], "the others are not concerned"
    assert (core.held, core.model.positions_in_use) == (0, 0)


def test_what_can_never_be_served_is_refused_alone(core: Core) -> None:
    wrong, right = Heard(Request((1, 999), 4)), Heard(Request((1, 2), 4))
    core.submit([wrong.job, right.job])
    wrong.wait(core)
    (refused,) = wrong.events
    assert refused.error is not None
    assert (refused.kind, refused.error.kind) == ("refused", "token-id")
    assert right.wait(core).tokens == said_alone(right.job.request)[0]


def test_a_text_that_no_token_can_follow_fails_alone(core: Core) -> None:
    nothing = Heard(Request((1, 2), 4), Choosing(bias=dict.fromkeys(range(259), -np.inf)))
    right = Heard(Request((1, 2), 4))
    core.submit([nothing.job, right.job])
    assert (nothing.wait(core).tokens, nothing.events[-1].reason) == ([], "failed")
    assert right.wait(core).tokens == said_alone(right.job.request)[0]


def test_stop_lets_texts_end_and_tells_those_that_it_ends() -> None:
    slow = Core(lambda: model(max_sequences=2), places=4)
    short, long = Heard(Request((1, 2), 3, stop=())), Heard(Request((3, 4), 60, stop=()))
    slow.submit([short.job, long.job])
    slow.stop(30)
    with pytest.raises(StoppingError):
        slow.submit([Heard(Request((1,), 1)).job])
    assert (short.wait(slow).events[-1].reason, long.wait(slow).events[-1].reason) == ("length", "length")
    slow.join(5)

    slow = Core(lambda: model(max_sequences=1), places=4)
    heard = [Heard(Request((3, 4), 60, stop=())) for _ in range(2)]
    slow.submit([h.job for h in heard])
    slow.stop(0)
    assert [h.wait(slow).events[-1].reason for h in heard] == ["shutdown"] * 2
    slow.join(5)


def test_an_unforeseen_error_is_told_and_survived() -> None:
    said: list[str] = []
    made = [0]

    def breaking() -> ReferenceModel:
        it = model()
        made[0] += 1
        if made[0] == 1:

            def broken() -> list[object]:
                raise RuntimeError("bang")

            it.step = broken  # type: ignore[method-assign, assignment]
        return it

    core = Core(breaking, places=4, say=said.append)
    first = Heard(Request((1, 2), 3))
    core.submit([first.job])
    assert first.wait(core).events[-1].reason == "crashed"
    second = Heard(Request((1, 2), 3))
    core.submit([second.job])
    assert second.wait(core).tokens == said_alone(second.job.request)[0]
    assert (core.crashes, core.held, "bang" in said[0]) == (1, 0, True)
    core.stop(0)
    core.join(5)


def without_a_second_model() -> Core:
    """A core whose first pass fails, and whose model cannot be made again: as where a process of it is lost."""
    said: list[str] = []
    it = model()

    def broken() -> list[object]:
        raise EngineError("a process of this model is lost", kind="process-lost")

    it.step = broken  # type: ignore[method-assign, assignment]
    made = [it]

    def make() -> ReferenceModel:
        if not made:
            broken()
        return made.pop()

    return Core(make, places=4, say=said.append)


def test_a_model_that_cannot_be_made_again_is_told_to_all_that_ask() -> None:
    core = without_a_second_model()
    heard = [Heard(Request((1, 2), 3)) for _ in range(3)]
    core.submit([h.job for h in heard])
    reasons = {h.wait(core).events[-1].reason for h in heard}
    assert reasons <= {"crashed", "shutdown"}
    core.join(5)
    assert isinstance(core.lost, EngineError)
    assert (core.held, core.crashes) == (0, 1)
    with pytest.raises(StoppingError):
        core.submit([Heard(Request((1,), 1)).job])


def test_a_hearer_that_is_gone_is_no_concern_of_others(core: Core) -> None:
    gone, right = Heard(Request((1, 2), 4)), Heard(Request((1, 2), 4))

    def away(event: object) -> None:
        raise RuntimeError("the loop is closed")

    gone.job.hear = away
    core.submit([gone.job, right.job])
    assert right.wait(core).tokens == said_alone(right.job.request)[0]
    end = time.monotonic() + 5
    while core.held and time.monotonic() < end:
        time.sleep(0.01)
    assert (core.held, core.crashes) == (0, 0)


def test_memory_bounds_the_positions(core: Core) -> None:
    assert model(memory=A_POSITION * PAGE * 16 * 2).pool.pages == 32
    assert model(memory=1 << 30).pool.pages == 16 * 64 // PAGE, "no more than all sequences can fill"
    with pytest.raises(ConfigError, match=r"kv-memory"):
        model(memory=A_POSITION * PAGE * 15)


def test_log_probabilities_are_those_of_the_logits_and_the_prompt_s_too(core: Core) -> None:
    prompt = tuple(range(40, 53))
    heard = Heard(Request(prompt, 3, stop=()), Choosing(shown=259))
    heard.job.request = Request(prompt, 3, stop=(), choose=heard.chooser.choose, hear=heard.chooser.hear)
    core.submit([heard.job])
    heard.wait(core)
    text = [*prompt, *heard.tokens]
    logits = forward(text, opened().weights, opened().config).astype(np.float64)
    rows = logits - logits.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    shown = [*heard.chooser.read, *(event.shown for event in heard.events if event.shown)]
    assert [one.token for one in shown] == text[1:]
    for one, row in zip(shown, rows, strict=False):
        np.testing.assert_allclose(one.logprob, row[one.token], atol=1e-12)
        np.testing.assert_allclose([value for _, value in one.top], np.sort(row)[::-1], atol=1e-12)


def test_penalties_and_biases_are_of_their_text_alone(core: Core) -> None:
    prompt = (5, 6, 7)
    greedy = said_alone(Request(prompt, 3))[0]
    barred = Heard(Request(prompt, 3), Choosing(bias={greedy[0]: -np.inf}))
    forced = Heard(Request(prompt, 3, stop=()), Choosing(bias={65: 1000.0}))
    turning = Heard(Request(prompt, 3, stop=()), Choosing(bias={65: 1000.0, 66: 1000.0}, frequency=100.0))
    once = Heard(Request(prompt, 3, stop=()), Choosing(bias={65: 1000.0, 66: 999.0}, presence=500.0))
    likeliest = Heard(Request(prompt, 3), Choosing(Sampling(2.0, seed=3), min_p=1.0))
    plain = Heard(Request(prompt, 3))
    every = [barred, forced, turning, once, likeliest, plain]
    core.submit([h.job for h in every])
    for h in every:
        h.wait(core)
    assert barred.tokens[0] != greedy[0]
    assert forced.tokens == [65, 65, 65]
    assert set(turning.tokens) == {65, 66}
    assert once.tokens[:2] == [65, 66]
    assert likeliest.tokens == plain.tokens == greedy
