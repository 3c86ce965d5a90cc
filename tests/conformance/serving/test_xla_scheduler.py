"""The JAX engine behind the server: the bits of an answer do not depend on who else is there, or was."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from counting_engine import CONTEXT, Counting, counted
from served import Running, running

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.sampling import Sampling, choose
from tritgold.decode.serving_options import Request
from tritgold.errors import ConfigError, ContextError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold_conformance.cli import main
from tritgold_conformance.comparing.logits import log_softmax
from tritgold_conformance.engines.xla import open_engine
from tritgold_conformance.serving import served_models
from tritgold_conformance.serving.xla_scheduler import XlaScheduler

MIXES = int(os.environ.get("TRITGOLD_SERVED_MIXES", "1"))  # 1,000 have been run
LONG = [(11 * n) % 251 for n in range(140)]  # a whole chunk, and 12 tokens


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("served")
    write_seeded_model(folder, Shape(seed=5, hidden=32, inter=48, layers=1, heads=2, kv_heads=1, context=CONTEXT))
    return folder


@pytest.fixture(scope="module")
def engine(model: Path) -> Any:
    return open_engine(open_checkpoint(model), CONTEXT, sequences=3)


class Rows:
    """A ``choose`` that keeps the logits it saw."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling, self.rows = sampling, list[np.ndarray]()

    def choose(self, logits: np.ndarray, text: Any) -> int:
        self.rows.append(logits.copy())
        return choose(logits, self.sampling, text)


Kept = tuple[Rows, Request]


def a_request(draw: random.Random) -> Kept:
    """Prompts of 33 tokens or more, or of a whole chunk and as many: the program for 128 tokens reads all of them."""
    long = draw.random() < 0.3
    tail = [draw.randrange(256) for _ in range(draw.randint(33, 40))]
    rows = Rows(draw.choice([Sampling(), Sampling(1.0, seed=draw.randrange(9))]))
    prompt = (LONG[:128] if long else []) + tail
    return rows, Request(prompt, draw.randint(1, 8), stop=draw.choice([None, ()]), choose=rows.choose)


@pytest.mark.parametrize("seed", range(1, 1 + MIXES))
def test_bits_do_not_depend_on_what_else_is_served(engine: Any, seed: int) -> None:
    served = XlaScheduler(engine)
    draw = random.Random(seed)
    asked = [a_request(draw) for _ in range(20)]
    coming, numbers, cancelled = list(enumerate(asked)), dict[int, int](), set[int]()
    while coming or any(served.unfinished):
        while coming and draw.random() < 0.6:
            which, (_, request) = coming.pop(0)
            numbers[served.submit(request)] = which
        served.step()
        if draw.random() < 0.08 and (live := [n for n in numbers if n not in served.outcomes]):
            served.cancel(gone := draw.choice(live))
            cancelled.add(gone)
    if seed == 1:
        assert served.counters.reused >= 128, "prefixes were reused"
        assert 0 < len(cancelled) < 10
    assert served.positions_in_use == 0
    for number, which in numbers.items():
        together, request = asked[which]
        rows = Rows(together.sampling)
        fresh = XlaScheduler(engine, reuse=False)
        alone = fresh.submit(Request(request.prompt, request.max_tokens, stop=request.stop, choose=rows.choose))
        while any(fresh.unfinished):
            fresh.step()
        count = len(together.rows)
        assert served.outcomes[number].tokens == fresh.outcomes[alone].tokens[:count]
        np.testing.assert_array_equal(np.array(together.rows), np.array(rows.rows[:count]))
        if number not in cancelled:
            assert served.outcomes[number].reason == fresh.outcomes[alone].reason


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Running]:
    with running("--backend", "xla", "--max-sequences", "3", "--cache-reuse", "64", model=model) as made:
        yield made


def test_the_judge_finds_over_http_that_it_conforms(model: Path, server: Running) -> None:
    words = ["check", "--engine", f"{server.url}?logprobs=259", "--model", str(model), "--tokens", "8", "--json"]
    result = CliRunner().invoke(main, words)
    assert server.service.core.model.positions_in_use == 0
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["levels"]["next_tokens"]["compared"] == 8


SHORT = [token % 96 for token in LONG]


def ended(served: XlaScheduler, request: Request) -> Any:
    number = served.submit(request)
    while any(served.unfinished):
        served.step()
    return served.outcomes[number]


def test_places_and_chunks_change_no_token() -> None:
    draw = random.Random(5)
    for _ in range(30):
        served = XlaScheduler(Counting(draw.randint(1, 4)), reuse=draw.random() < 0.7)
        asked = [
            Request(
                SHORT[: draw.choice([0, 128])] + [draw.randrange(96) for _ in range(draw.randint(1, 9))], 7, stop=()
            )
            for _ in range(9)
        ]
        coming, numbers, gone = list(enumerate(asked)), dict[int, int](), set[int]()
        while coming or any(served.unfinished):
            if coming and draw.random() < 0.7:
                which, request = coming.pop(0)
                numbers[served.submit(request)] = which
            served.step()
            if numbers and draw.random() < 0.1:
                gone.add(cancelled := draw.choice(list(numbers)))
                served.cancel(cancelled)
        for number, which in numbers.items():
            said, prompt = served.outcomes[number].tokens, [*asked[which].prompt]
            assert said == counted(prompt, len(said))
            assert len(said) == 7 or number in gone or served.outcomes[number].reason == "failed"
        assert (served.positions_in_use, served.unfinished) == (0, (0, 0))


def test_prompts_take_turns_and_texts_go_on_meanwhile() -> None:
    served = XlaScheduler(Counting(4), reuse=False)
    going = served.submit(Request([1, 2], 60, stop=()))
    assert [number for number, _ in served.step()] == [going]
    long = served.submit(Request(SHORT * 2, 2, stop=()))  # three chunks
    short = [served.submit(Request(SHORT[:n], 1, stop=())) for n in (5, 6)]
    passes = [[number for number, _ in served.step()] for _ in range(6)]
    assert passes == [[going], [short[0], going], [short[1], going], [going], [long, going], [going, long]]
    assert served.outcomes[long].tokens == counted(SHORT * 2, 2)


def test_a_prompt_that_is_heard_is_read_whole_and_kept_for_no_one() -> None:
    served, heard = XlaScheduler(Counting(3)), list[tuple[int, int]]()
    assert ended(served, Request(SHORT, 2)).reused == 0
    assert ended(served, Request(SHORT, 2)).reused == 128
    assert ended(served, Request(SHORT, 2, hear=lambda start, rows: heard.append((start, len(rows))))).reused == 0
    assert heard == [(0, 128), (128, 12)]
    assert ended(served, Request(SHORT, 2)).reused == 128, "another place still has it"
    assert ended(served, Request(SHORT[:128], 2)).reused == 0, "the last token is read in any case"


def test_one_that_fails_fails_alone() -> None:
    served = XlaScheduler(Counting(3))
    wrong = served.submit(Request([1, 13], 5, stop=(), choose=lambda logits, text: 96))
    right = served.submit(Request([1, 2], 5, stop=()))
    while any(served.unfinished):
        served.step()
    assert (served.outcomes[wrong].reason, served.outcomes[wrong].tokens) == ("failed", [96])
    assert (served.outcomes[right].reason, served.outcomes[right].tokens) == ("length", counted([1, 2], 5))


def test_a_cache_that_is_filled_to_its_end() -> None:
    served = XlaScheduler(Counting(2, capacity=128))
    assert ended(served, Request(SHORT[:128], 1)).tokens == counted(SHORT[:128], 1)
    assert ended(served, Request(SHORT[:120], 9)).tokens == counted(SHORT[:120], 9)
    assert ended(XlaScheduler(Counting(1)), Request([1] * 290, 50, stop=())).reason == "context_full"


def test_what_can_never_be_served_is_refused() -> None:
    small = XlaScheduler(Counting(1, capacity=20))
    with pytest.raises(ContextError, match="page-budget"):
        small.submit(Request([1] * 10, 12))
    with pytest.raises(ContextError, match="token-id"):
        small.submit(Request([999], 2))
    assert small.unfinished == (0, 0)
    small.submit(Request([1] * 10, 11))
    small.cancel(0)
    assert (small.unfinished, small.outcomes[0].reason) == ((0, 0), "cancelled")


@pytest.mark.parametrize("least", [0, 16])
def test_cache_reuse_moves_pieces_only_where_it_is_asked_for(least: int) -> None:
    """Of this engine, whose answer is a sum of all it has read, moved tokens are as good as those that are read."""
    served = XlaScheduler(Counting(1), cache_reuse=least)
    ended(served, Request(SHORT, 2))
    changed = [*SHORT[:128], *SHORT[132:], 5, 6]
    outcome = ended(served, Request([3, *SHORT[2:30], 4, *SHORT[50:90], 1], 4))
    assert outcome.tokens == counted([3, *SHORT[2:30], 4, *SHORT[50:90], 1], 4)
    assert outcome.moved == 0, "what is not read from the beginning on is read"
    ended(served, Request(SHORT, 2))
    outcome = ended(served, Request(changed, 4))
    assert (outcome.reused, outcome.moved) == (128, 0), "8 tokens are too few"
    assert outcome.tokens == counted(changed, 4)
    ended(served, Request(SHORT, 2))
    without = [*SHORT[3:60], *SHORT[80:130], 7]
    outcome = ended(served, Request(without, 4))
    assert (outcome.reused, outcome.moved) == (0, 107 if least else 0)
    assert outcome.tokens == counted(without, 4)
    assert (served.positions_in_use, served.unfinished) == (0, (0, 0))


def test_cache_reuse_is_said_and_near_what_is_read(engine: Any, server: Running) -> None:
    """In one layer keys and values depend on their token and its position alone: moved ones give the same logits."""
    ids = [token % 256 for token in range(3, 110)]
    cut = ids[5:]
    rows = Rows(Sampling())
    fresh = XlaScheduler(engine, reuse=False)
    fresh.submit(Request(cut, 3, stop=(), choose=rows.choose))
    while any(fresh.unfinished):
        fresh.step()
    asked = {"max_tokens": 3, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "logprobs": 4}
    first = server.post("/v1/completions", prompt=ids, **asked)
    said = server.post("/v1/completions", prompt=cut, **asked)
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "moved_tokens": 0}
    assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "moved_tokens": len(cut) - 1}
    (choice,) = said["choices"]
    alone = [float(log_softmax(row)[token]) for row, token in zip(rows.rows, choice["token_ids"], strict=True)]
    np.testing.assert_allclose(choice["logprobs"]["token_logprobs"], alone, atol=2e-3)
    assert server.ask("GET", "/props")[1]["approximations"] == {"cache_reuse": 64}
    assert server.post("/completion", prompt=[9, 8, 7], n_predict=1)["tokens_moved"] == 0


def test_cache_reuse_is_of_the_jax_engine(model: Path) -> None:
    result = CliRunner().invoke(main, ["serve", str(model), "--cache-reuse", "64"])
    assert result.exit_code == 2
    assert "the reference approximates nothing" in result.output


class Unmovable(Counting):
    """As one over several devices, or whose layers turn keys in two ways."""

    movable = False


def test_cache_reuse_is_refused_where_keys_cannot_be_moved(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_models, "open_engine", lambda *_, **__: Unmovable(3))
    checkpoint = open_checkpoint(model)
    with pytest.raises(ConfigError, match="needs one device") as raised:
        served_models.xla_model(checkpoint, 3, kv_scheme("f32"), 1 << 20, cache_reuse=64)
    assert raised.value.kind == "cache-reuse"
    served_models.xla_model(checkpoint, 3, kv_scheme("f32"), 1 << 20)  # without it there is nothing to refuse
    result = CliRunner().invoke(main, ["serve", str(model), "--backend", "xla", "--cache-reuse", "64", "--port", "0"])
    assert result.exit_code == 3
    assert "[cache-reuse]" in result.output


@pytest.mark.parametrize("tokens", ["-1", "half", "2.5"])
def test_cache_reuse_is_a_number_of_tokens(model: Path, tokens: str) -> None:
    result = CliRunner().invoke(main, ["serve", str(model), "--backend", "xla", "--cache-reuse", tokens])
    assert result.exit_code == 2
    assert "--cache-reuse" in result.output
