"""A batch is its sequences alone, bit for bit: whatever the order, the arrival, the cuts and what is cached."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import DRAWN, OPENED, alone, request, tail

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.autoregressive import generate, reference_logits
from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.decode.scheduler import Scheduler, serve
from tritgold.decode.serving_options import Request, Serving
from tritgold.golden import embedded_model
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.trace import Trace

REQUESTS = st.builds(
    request,
    family=st.integers(0, 1),
    alike=st.sampled_from([0, 4, 7]),
    length=st.integers(8, 17),
    max_tokens=st.integers(1, 6),
    how=st.sampled_from([GREEDY, DRAWN]),
)
SIZES = st.builds(
    Serving,
    max_sequences=st.integers(1, 4),
    chunk=st.sampled_from([1, 3, 5, 128]),
    radix_cache=st.booleans(),
    radix_cache_max_tokens=st.sampled_from([0, 20, 100_000]),
    page_size=st.sampled_from([1, 4]),
    pages=st.sampled_from([24, 60]),
    scheme=st.sampled_from([kv_scheme("f32"), kv_scheme("int8"), kv_scheme("fp8_e4m3")]),
)


def run(asked: list[Request], arrivals: list[int], sizes: Serving) -> tuple[Scheduler, list[Trace]]:
    """Request n comes before step ``arrivals[n]``; those of one step in the order of their list."""
    it, traces = Scheduler(OPENED.weights, OPENED.config, sizes), [Trace() for _ in asked]
    for now in range(max(arrivals) + 1):
        for each, arrival, trace in zip(asked, arrivals, traces, strict=True):
            if arrival == now:
                it.submit(each, trace)
        it.step()
    it.run()
    return it, traces


@settings(deadline=None, derandomize=True, max_examples=25)
@given(asked=st.lists(REQUESTS, min_size=1, max_size=5), sizes=SIZES, data=st.data())
def test_tokens_and_activations_are_those_of_each_request_alone(
    asked: list[Request], sizes: Serving, data: st.DataObject
) -> None:
    arrivals = sorted(data.draw(st.lists(st.integers(0, 6), min_size=len(asked), max_size=len(asked))))
    it, traces = run(asked, arrivals, sizes)
    for number, (each, trace) in enumerate(zip(asked, traces, strict=True)):
        tokens, reason, golden = alone(each, sizes.scheme)
        outcome = it.outcomes[number]
        assert (outcome.tokens, outcome.reason) == (tokens, reason)
        assert {name: array.tobytes() for name, array in trace.arrays.items()} == tail(golden, outcome.reused)
        assert (trace.tokens, trace.mode) == (golden.tokens[outcome.reused :], golden.mode)
    assert it.counters.prefilled + it.counters.reused == sum(len(each.prompt) for each in asked)
    assert it.counters.reused == sum(outcome.reused for outcome in it.outcomes.values())
    assert it.counters.generated == sum(len(outcome.tokens) for outcome in it.outcomes.values())


@settings(deadline=None, derandomize=True, max_examples=15)
@given(asked=st.lists(REQUESTS, min_size=2, max_size=5), sizes=SIZES, order=st.randoms(use_true_random=False))
def test_a_permuted_arrival_gives_permuted_results(asked: list[Request], sizes: Serving, order: random.Random) -> None:
    shuffled = list(range(len(asked)))
    order.shuffle(shuffled)
    straight = serve(asked, OPENED.weights, OPENED.config, sizes)
    permuted = serve([asked[n] for n in shuffled], OPENED.weights, OPENED.config, sizes)
    assert [each.tokens for each in permuted] == [straight[n].tokens for n in shuffled]
    assert [each.reason for each in permuted] == [straight[n].reason for n in shuffled]


def test_a_hit_saves_reading_and_changes_no_bit() -> None:
    """The same three requests one after the other, with and without reuse: the same logits from fewer tokens."""
    asked = [request(1, 12, length, 4) for length in (12, 17, 15)]
    logits, read = [], []
    for reuse in (True, False):
        it, traces = Scheduler(OPENED.weights, OPENED.config, Serving(radix_cache=reuse, page_size=3)), []
        for each in asked:
            traces.append(Trace())
            it.submit(each, traces[-1])
            it.run()
        logits.append([trace["logits"].tobytes() for trace in traces])
        read.append((it.counters.prefilled, it.counters.reused))
    assert logits[0] == logits[1]
    assert read == [(44 - 24, 24), (44, 0)]


def test_what_is_compared_can_differ() -> None:
    """Another seed, another text: the comparisons above are not blind."""
    first, second = (request(0, 4, 9, 6, Sampling(temperature=6.0, seed=seed)) for seed in (1, 2))
    assert alone(first)[0] != alone(second)[0]
    assert tail(alone(first)[2], 0) != tail(alone(second)[2], 0)


@pytest.mark.parametrize("reuse", [True, False])
def test_the_trained_model_in_a_batch(reuse: bool) -> None:
    with embedded_model("kjv-ar") as path:
        opened = open_checkpoint(path)
    begin = [0, *range(260, 277)]
    asked = [
        Request(begin, 5),
        Request([*begin, 300, 301], 3),
        Request(begin[:7], 4, Sampling(temperature=0.8, seed=7)),
    ]
    sizes = Serving(max_sequences=2, chunk=8, page_size=4, radix_cache=reuse)
    outcomes = serve(asked, opened.weights, opened.config, sizes)
    for each, outcome in zip(asked, outcomes, strict=True):
        model = reference_logits(opened.weights, opened.config, 60)
        steps = list(generate(list(each.prompt), opened.config, model, each.max_tokens, each.sampling))
        assert (outcome.tokens, outcome.reason) == ([step.token for step in steps], steps[-1].reason)
    assert (sum(outcome.reused for outcome in outcomes) > 0) is reuse
