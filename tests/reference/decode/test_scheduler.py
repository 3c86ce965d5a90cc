"""The scheduler by hand: who is admitted when, what is counted, why a text ends, and what is refused or fails."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_diffusion import prompt_of
from refusals import frugal, refusal
from serving_cases import OPENED, alone, assert_sound, request

from tritgold.decode.sampling import Sampling
from tritgold.decode.scheduler import Scheduler, serve
from tritgold.decode.server_defects import served
from tritgold.decode.serving_options import Counters, Request, Serving
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.model import forward
from tritgold.trace import Trace

WEIGHTS, CONFIG = OPENED.weights, OPENED.config


def scheduler(**sizes: Any) -> Scheduler:
    return Scheduler(WEIGHTS, CONFIG, Serving(**{"page_size": 4, **sizes}))


def numbers(running: Any) -> list[int]:
    return [sequence.number for sequence in running]


def test_a_long_prompt_is_read_in_chunks_while_the_others_go_on() -> None:
    it = scheduler(chunk=4, max_sequences=2)
    it.submit(Request(prompt_of(1, 3), 4))
    it.submit(Request(prompt_of(2, 10), 2))
    said = [numbers_of for _ in range(4) if (numbers_of := [number for number, _ in it.step()])]
    assert said == [[0], [0], [0, 1], [0, 1]], "10 tokens are 3 passes; only the last of them gives a token"
    assert it.counters == Counters(requests=2, forwards=4, prefilled=13, reused=0, generated=6)
    assert it.step() == []
    assert it.counters.forwards == 4


def test_a_request_may_choose_for_itself_and_hear_its_prompt() -> None:
    """What is heard are the logits of the prompt read alone, whoever shares the pass and whatever is cached."""
    it, heard, seen = scheduler(chunk=4, max_sequences=2), list[tuple[int, np.ndarray]](), list[int]()
    prompt = prompt_of(1, 10)
    it.submit(Request(prompt, 2))
    it.run()

    def choose(logits: np.ndarray, text: Any) -> int:
        seen.append(len(text))
        return int(np.argmin(logits))

    it.submit(Request(prompt_of(2, 3), 4))
    number = it.submit(Request(prompt, 2, choose=choose, hear=lambda start, rows: heard.append((start, rows))))
    it.run()
    assert [start for start, _ in heard] == [0, 4, 8]
    logits = forward(prompt, WEIGHTS, CONFIG)
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in heard]), logits)
    assert (it.outcomes[number].reused, seen) == (0, [10, 11])
    assert it.outcomes[number].tokens[0] == int(np.argmin(logits[-1]))


def test_admission_in_order_of_arrival_as_far_as_there_are_slots() -> None:
    it = scheduler(max_sequences=2)
    for n, tokens in enumerate([3, 1, 2]):
        it.submit(Request(prompt_of(n, 5), tokens))
    it.step()
    assert (numbers(it.running), numbers(it.waiting)) == ([0], [2]), "1 is through with its first token"
    it.step()
    assert (numbers(it.running), numbers(it.waiting)) == ([0, 2], [])
    it.run()
    assert [it.outcomes[n].reason for n in range(3)] == ["length"] * 3


def test_pages_are_promised_to_the_end_and_nobody_overtakes() -> None:
    """8 pages of 4: 5 for 11 + 9 tokens, 4 for the second; the third would need one, and waits all the same."""
    it = scheduler(pages=8, radix_cache=False)
    for prompt, tokens in ((11, 9), (8, 9), (2, 2)):
        it.submit(Request(prompt_of(prompt, prompt), tokens))
    it.step()
    assert (numbers(it.running), numbers(it.waiting)) == ([0], [1, 2])
    assert it.pool.free_pages == 5, "promised, not taken: 11 tokens are in three"
    for _ in range(8):
        assert numbers(it.running) == [0]
        it.step()
        assert_sound(it)
    it.step()
    assert numbers(it.running) == [1, 2]
    it.run()
    assert it.pool.free_pages == 8


def test_what_is_cached_is_evicted_for_those_who_need_its_pages() -> None:
    it = scheduler(pages=8)
    for n in range(4):
        it.submit(Request(prompt_of(n, 12), 9))  # 5 pages each, and 5 of them stay
        it.run()
        assert_sound(it)
        assert it.outcomes[n].tokens == alone(Request(tuple(prompt_of(n, 12)), 9))[0]
    assert it.counters.reused == 0
    assert it.radix is not None
    assert it.radix.match(prompt_of(3, 12)).pages, "the newest is still there"
    assert not it.radix.match(prompt_of(0, 12)).pages


def test_a_prompt_that_is_cached_is_not_read_again_but_for_its_last_token() -> None:
    it = scheduler(page_size=1)
    asked = Request(tuple(prompt_of(1, 10)), 3)
    for _ in range(2):
        it.submit(asked)
        it.run()
    assert (it.counters.prefilled, it.counters.reused) == (10 + 1, 9)
    assert [outcome.reused for outcome in it.outcomes.values()] == [0, 9]
    it.submit(replace(asked, prompt=[*asked.prompt, *it.outcomes[0].tokens]))  # the next turn of a conversation
    it.run()
    assert it.outcomes[2].reused == 10 + 2, "the last generated token was never read: it has no keys"


def test_reuse_while_the_other_is_running_and_after_it_was_cancelled() -> None:
    it = scheduler(page_size=2)
    first, second = request(1, 9, 9, 20), request(1, 9, 14, 5)
    it.submit(first)
    it.step()
    it.submit(second)
    it.step()
    assert [sequence.reused for sequence in it.running] == [0, 8]
    it.cancel(0)
    it.cancel(0)
    assert_sound(it)
    it.run()
    assert it.outcomes[1].tokens == alone(second)[0]
    assert (it.outcomes[0].reason, it.outcomes[0].tokens) == ("cancelled", alone(first)[0][:2])


def test_a_request_can_be_cancelled_while_it_waits() -> None:
    it = scheduler(max_sequences=1)
    for n in range(3):
        it.submit(request(n, 3, 5, 2))
    it.cancel(1)
    it.run()
    assert (it.outcomes[1].tokens, it.outcomes[1].reason) == ([], "cancelled")
    assert [it.outcomes[n].tokens for n in (0, 2)] == [alone(request(n, 3, 5, 2))[0] for n in (0, 2)]
    assert it.counters.prefilled == 10


def test_a_cache_of_few_tokens_stays_small() -> None:
    it = scheduler(page_size=2, radix_cache_max_tokens=10)
    for n in range(3):
        it.submit(Request(prompt_of(n, 8), 2))
        it.run()
        assert_sound(it)
    assert it.radix is not None
    assert it.radix.cached_pages == 4
    assert it.radix.match(prompt_of(2, 8)).pages
    none = scheduler(radix_cache_max_tokens=0)
    none.submit(Request(prompt_of(1, 9), 4))
    none.run()
    assert none.pool.free_pages == none.pool.pages


def test_stop_length_and_context_are_those_of_generate() -> None:
    text = alone(request(2, 5, 20, 30))[0]
    prompt = request(2, 5, 20, 30).prompt
    asked = [
        Request(prompt, 30, stop=(text[4],)),
        Request(prompt, 30, stop=()),
        Request(tuple(prompt_of(3, 60)), 100),
        Request(tuple(prompt_of(4, 64)), 1),
        Request(tuple(prompt_of(5, 64)), 2),
        Request(prompt, 1, stop=(text[0],)),
    ]
    outcomes = serve(asked, WEIGHTS, CONFIG, Serving(max_sequences=3, chunk=7, page_size=4))
    assert [outcome.reason for outcome in outcomes] == [
        "stop",
        "length",
        "context_full",
        "length",
        "context_full",
        "stop",
    ]
    assert [(outcome.tokens, outcome.reason) for outcome in outcomes] == [alone(each)[:2] for each in asked]
    model_stops = replace(CONFIG, eos=(text[4],))
    (by_model,) = serve([Request(prompt, 30)], WEIGHTS, model_stops)
    assert (by_model.tokens, by_model.reason) == (outcomes[0].tokens, "stop")


@pytest.mark.parametrize("chunk", [1, 4, 128])
@pytest.mark.parametrize("cached", [0, 5, 11])
def test_it_has_none_of_the_defects_of_served(chunk: int, cached: int) -> None:
    """D8 to D10: every chunk gives a token, positions jump, the last token is read twice or has no key."""
    prompt = [(n * n * 13 + 5) % 256 for n in range(11)]
    it = scheduler(chunk=chunk, page_size=1)
    if cached:
        it.submit(Request(prompt[: cached - 1], 2))
        it.run()
    number = it.submit(Request(prompt, 6))
    it.run()
    assert it.outcomes[number].tokens == served(prompt, WEIGHTS, CONFIG, 6, chunk=chunk)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("no-tokens", {"prompt": []}),
        ("token-id", {"prompt": [1, CONFIG.vocab]}),
        ("token-id", {"stop": [-1]}),
        ("context-length", {"prompt": prompt_of(0, 65)}),
        ("max-tokens", {"max_tokens": 0}),
        ("page-budget", {"max_tokens": 17}),
    ],
)
def test_requests_that_can_never_be_served_are_refused_at_once(kind: str, changes: dict[str, Any]) -> None:
    it = scheduler(pages=5)
    good = Request(prompt_of(1, 5), 16)  # its last token is never read: 20 positions, 5 pages
    with frugal():
        assert refusal(lambda: it.submit(replace(good, **changes))).kind == kind
        assert refusal(lambda: serve([good, replace(good, **changes)], WEIGHTS, CONFIG, it.serving)).kind == kind
    assert (list(it.waiting), it.counters) == ([], Counters())
    assert it.submit(good) == 0


@pytest.mark.parametrize("option", ["max_sequences", "chunk", "page_size", "pages", "radix_cache_max_tokens"])
@pytest.mark.parametrize("value", [-1, 0, 1.0, True, "8"])
def test_sizes_that_are_none_are_refused(option: str, value: Any) -> None:
    if (option, value) == ("radix_cache_max_tokens", 0):
        assert Serving(radix_cache_max_tokens=0).radix_cache_max_tokens == 0
        return
    error = refusal(lambda: Serving(**{option: value}))
    assert (error.kind, error.thing) == ("serving-option", option)


@pytest.mark.parametrize(
    ("option", "value"), [("radix_cache", "no"), ("radix_cache", 1), ("scheme", "f32"), ("scheme", None)]
)
def test_a_switch_is_one_and_a_scheme_too(option: str, value: Any) -> None:
    error = refusal(lambda: Serving(**{option: value}))
    assert (error.kind, error.thing) == ("serving-option", option)


def test_schemes_that_cannot_be_paged_or_shared_are_refused() -> None:
    for name, kind in (("kivi2", "kv-paged"), ("a4_8", "kv-shared")):
        assert refusal(lambda name=name: scheduler(scheme=kv_scheme(name))).kind == kind  # type: ignore[misc]
    it = scheduler(scheme=kv_scheme("a4_8"), radix_cache=False, chunk=3)
    asked = [request(n, 4, 9, 5) for n in range(2)]
    for each in asked:
        it.submit(each)
    it.run()
    assert [it.outcomes[n].tokens for n in range(2)] == [alone(each, kv_scheme("a4_8"))[0] for each in asked]


def test_the_default_pool_holds_every_sequence_at_its_longest() -> None:
    it = Scheduler(WEIGHTS, CONFIG, Serving(max_sequences=3, page_size=24))
    assert it.pool.pages == 3 * 3
    for n in range(3):
        it.submit(Request(prompt_of(n, 60), 10))
    it.step()
    assert len(it.running) == 3


class Damaged:
    """An embedding in which one token is infinite."""

    shape = WEIGHTS.embedding.shape

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        table = WEIGHTS.embedding.rows(slice(None)).copy()
        table[200] = np.inf
        return table[index]


def test_a_prompt_that_breaks_the_model_fails_alone() -> None:
    """Its first chunk is read with the others', its second is not; the pass is made again, each by itself."""
    it = Scheduler(replace(WEIGHTS, embedding=Damaged(), head=WEIGHTS.embedding), CONFIG, Serving(chunk=4, page_size=2))
    good = [request(n, 3, 9, 6) for n in range(2)]
    traces = [Trace() for _ in range(3)]
    for each, trace in zip([good[0], Request([1, 2, 3, 4, 5, 6, 200], 6), good[1]], traces, strict=True):
        it.submit(each, trace)
    it.step()
    it.step()
    assert it.counters.forwards == 1 + 1 + 3
    assert_sound(it)
    it.run()
    failed = it.outcomes[1]
    assert (failed.tokens, failed.reason) == ([], "failed")
    assert failed.error is not None
    assert failed.error.kind == "activation-non-finite"
    assert traces[1].tokens == [1, 2, 3, 4]
    for number, each, trace in zip((0, 2), good, traces[::2], strict=True):
        assert it.outcomes[number].tokens == alone(each)[0]
        assert trace.digest() == alone(each)[2].digest()
    assert_sound(it)


def test_sampling_that_overflows_fails_alone() -> None:
    it = scheduler()
    asked = request(1, 3, 9, 6)
    it.submit(asked)
    it.submit(replace(asked, sampling=Sampling(repetition_penalty=1e-320)))
    it.run()
    failed = it.outcomes[1]
    assert (failed.reason, failed.tokens) == ("failed", [])
    assert failed.error is not None
    assert failed.error.kind == "logits-non-finite"
    assert it.outcomes[0].tokens == alone(asked)[0]
    assert_sound(it)
