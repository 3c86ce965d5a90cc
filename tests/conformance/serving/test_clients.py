"""Clients that others wrote, unchanged; and the judge, over HTTP alone."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from click.testing import CliRunner
from served import Running, alone, running, smallest

from tritgold.decode.sampling import GREEDY
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.cli import main

MESSAGES: Any = [{"role": "user", "content": "Who art thou?"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as made:
        yield made


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def expected(ids: list[int], count: int) -> str:
    return Tokenizer(smallest() / "tokenizer.json").decode(alone(tuple(ids), count, GREEDY, None)[0])


CHAT = [256, *b"user: Who art thou?\nassistant:"]


def test_chat(client: openai.OpenAI) -> None:
    said = client.chat.completions.create(model="smallest", messages=MESSAGES, max_tokens=8, temperature=0)
    assert said.choices[0].message.content == expected(CHAT, 8)
    assert said.choices[0].finish_reason == "length"
    assert said.usage is not None
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (len(CHAT), 8)


def test_chat_streaming(client: openai.OpenAI) -> None:
    events = list(
        client.chat.completions.create(
            model="smallest", messages=MESSAGES, max_tokens=8, temperature=0, stream=True, logprobs=True,
            top_logprobs=2, stream_options={"include_usage": True},
        )
    )  # fmt: skip
    texts = [event.choices[0].delta.content or "" for event in events if event.choices]
    assert "".join(texts) == expected(CHAT, 8)
    assert events[0].choices[0].delta.role == "assistant"
    assert [event.choices[0].finish_reason for event in events if event.choices][-1] == "length"
    shown = [one for e in events if e.choices and e.choices[0].logprobs for one in e.choices[0].logprobs.content or []]
    assert len(shown) == 8
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 8


def test_completions(client: openai.OpenAI) -> None:
    prompt = [256, *b"In the"]
    said = client.completions.create(model="smallest", prompt="In the", max_tokens=8, temperature=0, logprobs=2, n=2)
    assert [choice.text for choice in said.choices] == [expected(prompt, 8)] * 2
    assert said.choices[0].logprobs is not None
    assert said.choices[0].logprobs.token_logprobs is not None
    assert len(said.choices[0].logprobs.token_logprobs) == 8
    events = client.completions.create(
        model="smallest", prompt=["In the", "In the"], max_tokens=8, temperature=0, stream=True, echo=True
    )
    texts = ["", ""]
    for event in events:
        texts[event.choices[0].index] += event.choices[0].text
    assert texts == ["In the" + expected(prompt, 8)] * 2
    assert [model.id for model in client.models.list()] == ["smallest"]


def test_errors_are_the_client_s_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="smallest", prompt="a", max_tokens=8, stop=[""])
    assert (refused.value.param, refused.value.code, refused.value.type) == (
        "stop[0]", "invalid_value", "invalid_request_error",
    )  # fmt: skip
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError) as late:  # before the first event, not in the stream
        client.chat.completions.create(model="smallest", messages=[{"role": "user", "content": "a" * 99}], stream=True)
    assert late.value.code == "context_length_exceeded"


def test_no_event_holds_a_part_of_a_character(server: Running) -> None:
    for token in (195, 226):  # the first bytes of characters of 2 and 3
        body = {"prompt": "a", "max_tokens": 6, "temperature": 0, "stream": True, "logit_bias": {str(token): 100}}
        status, text, headers = server.ask("POST", "/v1/completions", body)
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
        pieces = [event["choices"][0]["text"] for event in events]
        assert "".join(pieces[:-1]) == "", "held back until it is certain that no character comes of it"
        assert text.endswith("data: [DONE]\n\n")


def test_llama_cpp_s_stream_is_its_answer(server: Running) -> None:
    body = {"prompt": "In the", "n_predict": 6, "temperature": 0, "n_probs": 2}
    whole = server.post("/completion", **body)
    _, text, _ = server.ask("POST", "/completion", body | {"stream": True})
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert [one for e in events for one in e["completion_probabilities"]] == whole["completion_probabilities"]
    assert events[-1]["stop_type"] == "limit"


def judged(url: str, *words: str) -> tuple[int, dict[str, Any]]:
    arguments = ["check", "--engine", url, "--model", str(smallest()), "--tokens", "6", "--json", *words]
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, json.loads(result.stdout)


def test_the_judge_finds_that_it_conforms(server: Running) -> None:
    code, report = judged(f"{server.url}?logprobs=259")
    assert code == 0
    assert report["levels"]["next_tokens"]["status"] == "passed"
    assert report["levels"]["next_tokens"]["compared"] == 6


def test_the_judge_names_a_fault_that_is_switched_on() -> None:
    with running("--defect", "attn-residual-dropped") as faulty:
        code, report = judged(faulty.url)
    assert code == 1
    assert report["diagnosis"]["verdict"] == "named"
    assert [named["fault"] for named in report["diagnosis"]["faults"]] == ["attn-residual-dropped"]
    assert report["diagnosis"]["levels"] == ["next_tokens"]
