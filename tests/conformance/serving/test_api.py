"""What endpoints answer: the golden model's tokens and log-probabilities, in the forms that clients know."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import SMALLEST, Running, alone, opened, running, smallest

from tritgold.decode.sampling import Sampling
from tritgold.golden.seeded import write_seeded_model
from tritgold.model import forward
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.comparing.logits import log_softmax
from tritgold_conformance.serving.choosing import shown

PROMPT = [5, 60, 70, 80]
VOCAB = 259


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as made:
        yield made


def text_of(ids: list[int]) -> str:
    return Tokenizer(smallest() / "tokenizer.json").decode(ids)


def greedy(prompt: list[int], count: int, **sampling: Any) -> list[int]:
    return alone(tuple(prompt), count, Sampling(**sampling), None)[0]


def rows(text: list[int]) -> np.ndarray:
    logits = forward(text, opened().weights, opened().config).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def test_greedy_text_and_usage(server: Running) -> None:
    said = server.post("/v1/completions", prompt=PROMPT, max_tokens=6, temperature=0, return_token_ids=True)
    (choice,) = said["choices"]
    assert choice["token_ids"] == greedy(PROMPT, 6)
    assert choice["text"] == text_of(greedy(PROMPT, 6))
    assert (choice["finish_reason"], choice["logprobs"]) == ("length", None)
    assert said["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10, "prompt_tokens_details": None,
    }  # fmt: skip
    assert (said["object"], said["model"]) == ("text_completion", "smallest")


def test_text_prompts_are_encoded_as_the_model_does(server: Running) -> None:
    ids = server.post("/tokenize", prompt="Hé")["tokens"]
    assert ids == [256, 72, 195, 169]
    by_text = server.post("/v1/completions", prompt="Hé", max_tokens=4, temperature=0)
    by_ids = server.post("/v1/completions", prompt=ids, max_tokens=4, temperature=0)
    assert by_text["choices"] == by_ids["choices"]


def test_several_prompts_and_several_answers(server: Running) -> None:
    said = server.post(
        "/v1/completions", prompt=[[5, 6], [7, 8]], n=2, max_tokens=5, seed=7, temperature=1, return_token_ids=True
    )
    assert [choice["index"] for choice in said["choices"]] == [0, 1, 2, 3]
    expected = [greedy(p, 5, temperature=1.0, seed=s) for p in ([5, 6], [7, 8]) for s in (7, 8)]
    assert [choice["token_ids"] for choice in said["choices"]] == expected
    assert said["usage"]["prompt_tokens"] == 4
    drawn = [
        server.post("/v1/completions", prompt="a", max_tokens=8, return_token_ids=True)["choices"][0]["token_ids"]
        for _ in range(3)
    ]
    assert len(set(map(tuple, drawn))) > 1, "without a seed answers differ"


@pytest.mark.parametrize("count", [1, 20, VOCAB])
def test_log_probabilities_in_both_forms(server: Running, count: int) -> None:
    written = greedy(PROMPT, 3)
    expected = rows([*PROMPT, *written])[len(PROMPT) - 1 : -1]
    said = server.post("/v1/completions", prompt=PROMPT, max_tokens=3, temperature=0, logprobs=count,
                       return_tokens_as_token_ids=True)  # fmt: skip
    lists = said["choices"][0]["logprobs"]
    assert lists["tokens"] == [f"token_id:{token}" for token in written]
    llama = server.post("/completion", prompt=PROMPT, n_predict=3, temperature=0, n_probs=count)
    for n, (row, token) in enumerate(zip(expected, written, strict=True)):
        best = np.argsort(-row, kind="stable")[:count].tolist()
        np.testing.assert_allclose(lists["token_logprobs"][n], row[token], atol=1e-12)
        shown = lists["top_logprobs"][n]
        assert list(shown) == [f"token_id:{i}" for i in best]
        np.testing.assert_allclose(list(shown.values()), row[best], atol=1e-12)
        entry = llama["completion_probabilities"][n]
        assert (entry["id"], [one["id"] for one in entry["top_logprobs"]]) == (token, best)
        np.testing.assert_allclose([one["logprob"] for one in entry["top_logprobs"]], row[best], atol=1e-12)
    by_text = server.post("/v1/completions", prompt=PROMPT, max_tokens=3, temperature=0, logprobs=VOCAB)
    for n, name in enumerate(by_text["choices"][0]["logprobs"]["tokens"]):
        assert max(by_text["choices"][0]["logprobs"]["top_logprobs"][n].items(), key=lambda one: one[1])[0] == name
    assert all(len(top) == VOCAB for top in by_text["choices"][0]["logprobs"]["top_logprobs"]), "no name twice"


def test_log_probabilities_of_all_answers_together_are_limited(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritgold_conformance.serving.service.MOST_SHOWN", 3 * VOCAB)
    asked = {"prompt": PROMPT, "max_tokens": 3, "logprobs": VOCAB}
    assert server.ask("POST", "/v1/completions", asked)[0] == 200
    for more in ({"n": 2}, {"prompt": [PROMPT, PROMPT]}, {"echo": True}):
        status, said, _ = server.ask("POST", "/v1/completions", asked | more)
        assert (status, said["error"]["param"]) == (400, "logprobs")


@pytest.mark.parametrize("count", [0, 1, 3, 6, 8])
def test_the_likeliest_are_those_of_a_whole_sort(count: int) -> None:
    logits = np.array([1.0, 3.0, 2.0, 3.0, -4.0, 2.0, 3.0, 2.0])
    found = shown(logits, 2, count)
    assert found.ids.tolist() == [1, 3, 6, 2, 5, 7, 0, 4][:count]
    np.testing.assert_array_equal(found.logprobs, log_softmax(logits)[found.ids])


def test_echo_shows_the_prompt_and_its_log_probabilities(server: Running) -> None:
    said = server.post("/v1/completions", prompt=PROMPT, max_tokens=2, temperature=0, logprobs=1, echo=True,
                       return_tokens_as_token_ids=True)["choices"][0]  # fmt: skip
    text = [*PROMPT, *greedy(PROMPT, 2)]
    assert said["text"] == text_of(PROMPT) + text_of(text[4:])
    assert said["logprobs"]["tokens"] == [f"token_id:{i}" for i in text]
    assert said["logprobs"]["token_logprobs"][0] is said["logprobs"]["top_logprobs"][0] is None
    expected = [row[token] for row, token in zip(rows(text), text[1:], strict=False)]
    np.testing.assert_allclose(said["logprobs"]["token_logprobs"][1:], expected, atol=1e-12)
    assert len(said["logprobs"]["text_offset"]) == 6
    scored = server.post("/v1/completions", prompt=PROMPT, max_tokens=0, logprobs=1, echo=True)
    assert (scored["choices"][0]["text"], scored["usage"]["completion_tokens"]) == (text_of(PROMPT), 0)
    np.testing.assert_allclose(scored["choices"][0]["logprobs"]["token_logprobs"][1:], expected[:3], atol=1e-12)


def test_stops_biases_penalties_and_ends(server: Running) -> None:
    forced = {"prompt": "x", "max_tokens": 9, "temperature": 0}
    abc = {"65": 90, "66": 90, "67": 90}
    text = server.post("/v1/completions", **forced, logit_bias=abc, presence_penalty=2, frequency_penalty=2)
    assert set(text["choices"][0]["text"]) == set("ABC")
    whole = text["choices"][0]["text"]
    stop = whole[4:6]
    at = whole.find(stop)
    cut = server.post("/v1/completions", **forced, logit_bias=abc, presence_penalty=2, frequency_penalty=2, stop=stop)
    assert (cut["choices"][0]["text"], cut["choices"][0]["finish_reason"]) == (whole[:at], "stop")
    assert cut["usage"]["completion_tokens"] == at + 2
    ended = server.post("/v1/completions", **forced, logit_bias={"257": 100})
    assert (ended["choices"][0]["text"], ended["choices"][0]["finish_reason"]) == ("", "stop")
    on = server.post("/v1/completions", **forced, logit_bias={"257": 100}, ignore_eos=True)
    assert (on["usage"]["completion_tokens"], on["choices"][0]["finish_reason"]) == (9, "length")
    own = server.post("/v1/completions", **forced, logit_bias={"65": 100}, stop_token_ids=[65])
    assert (own["usage"]["completion_tokens"], own["choices"][0]["text"]) == (1, "")
    barred = server.post("/completion", prompt="x", n_predict=1, temperature=0, logit_bias=[[257, 50], [257, False]])
    assert barred["stop_type"] == "limit"


def test_a_chat_is_the_completion_of_its_template(server: Running) -> None:
    messages = [{"role": "system", "content": "s", "refusal": None, "annotations": []},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]}]  # fmt: skip
    text = "system: s\nuser: hi\nassistant:"
    ids = server.post("/tokenize", messages=messages)["tokens"]
    assert ids == [256, *text.encode()]
    said = server.post("/v1/chat/completions", messages=messages, max_tokens=5, temperature=0, logprobs=True,
                       top_logprobs=3)  # fmt: skip
    choice = said["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text_of(greedy(ids, 5))}
    shown = choice["logprobs"]["content"]
    assert [one["id"] for one in shown] == greedy(ids, 5)
    assert all(len(one["top_logprobs"]) == 3 for one in shown)
    assert said["object"] == "chat.completion"
    rest = server.post("/v1/chat/completions", messages=messages[1:], temperature=0)
    assert rest["usage"]["total_tokens"] == 65, "as many as the context has; the last is never read"


def test_what_llama_cpp_s_own_page_sends_is_taken(server: Running) -> None:
    fields = {"samplers": "edkypmxt", "cache_prompt": True, "timings_per_token": True, "dynatemp_range": 0,
              "dynatemp_exponent": 1, "xtc_probability": 0, "xtc_threshold": 0.1, "typ_p": 1, "repeat_last_n": 64,
              "repeat_penalty": 1, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "max_tokens": -1,
              "dry_penalty_last_n": -1, "min_p": 0.05, "top_k": 40, "reasoning_format": "auto"}  # fmt: skip
    messages = [{"role": "user", "content": "hi"}]
    said = server.post("/v1/chat/completions", messages=messages, temperature=0, **fields)
    assert said["usage"]["total_tokens"] == 65
    assert server.post("/completion", prompt="a", n_predict=1, model="any", repeat_penalty=1.1, seed=-1)


@pytest.mark.parametrize("samplers", ["edkypmxt", ["penalties", "top_k", "top_p", "min_p", "temperature"], None])
def test_a_chain_with_all_samplers_of_ours_is_taken(server: Running, samplers: Any) -> None:
    server.post("/completion", prompt="a", n_predict=1, samplers=samplers)


@pytest.mark.parametrize("samplers", [["top_k"], "k", [], "", {"top_k": 1}, 5, ["top_k", "top_p", "min_p"]])
def test_a_chain_that_leaves_a_sampler_out_is_refused(server: Running, samplers: Any) -> None:
    """Its parameter would have no effect there, and has one here."""
    status, found, _ = server.ask("POST", "/completion", {"prompt": "a", "n_predict": 1, "samplers": samplers})
    assert (status, found["error"]["param"], found["error"]["code"]) == (400, "samplers", "unsupported_parameter")


def test_llama_cpp_s_endpoints(server: Running) -> None:
    said = server.post("/completion", prompt=["x", 65, "y"], n_predict=4, temperature=0, return_tokens=True)
    assert said["tokens"] == greedy([256, 120, 65, 121], 4)
    assert (said["stop"], said["stop_type"], said["tokens_evaluated"]) == (True, "limit", 4)
    _, props, _ = server.ask("GET", "/props")
    assert props["default_generation_settings"]["n_ctx"] == 64
    assert props["total_slots"] == server.service.slots < server.service.core.places
    assert (props["bos_token"], props["eos_token"]) == ("<bos>", "<eos>")
    assert str(smallest()) not in str(props), "no path of this machine"
    assert server.post("/tokenize", content="Hé")["tokens"] == [72, 195, 169]
    assert server.post("/tokenize", content="H", add_special=True, with_pieces=True)["tokens"][1] == {
        "id": 72, "piece": "H",
    }  # fmt: skip
    assert server.post("/detokenize", tokens=[72, 195, 169])["content"] == "Hé"


def test_models_health_and_metrics(server: Running) -> None:
    assert server.ask("GET", "/health")[:2] == (200, {"status": "ok"})
    _, models, _ = server.ask("GET", "/v1/models")
    assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("smallest", 64)
    assert server.ask("GET", "/v1/models/smallest")[1] == models["data"][0]
    assert server.ask("GET", "/v1/models/other")[1]["error"]["code"] == "model_not_found"
    _, before, _ = server.ask("GET", "/metrics")
    server.post("/v1/completions", prompt=[1, 2, 3], max_tokens=4, temperature=0)
    _, after, _ = server.ask("GET", "/metrics")

    def value(text: str, name: str) -> float:
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    assert value(after, "tritgold_prompt_tokens_total") - value(before, "tritgold_prompt_tokens_total") == 3
    assert value(after, "tritgold_generated_tokens_total") - value(before, "tritgold_generated_tokens_total") <= 4
    assert value(after, "tritgold_kv_positions") == 0


def test_what_is_cached_is_said_and_changes_nothing(server: Running) -> None:
    prompt = [(7 * n) % 250 for n in range(40)]
    first, second = (
        server.post("/v1/completions", prompt=prompt, max_tokens=3, temperature=0) for _ in range(2)
    )  # fmt: skip
    assert first["choices"] == second["choices"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 32


ASKED: dict[str, tuple[str, dict[str, Any], int, str | None, str]] = {
    "no prompt": ("/v1/completions", {}, 400, "prompt", "missing_parameter"),
    "empty prompt": ("/v1/completions", {"prompt": []}, 400, "prompt", "invalid_value"),
    "mixed prompt": ("/v1/completions", {"prompt": [[1], "a", {}]}, 400, "prompt[2]", "invalid_value"),
    "no such token": ("/v1/completions", {"prompt": [1, 259]}, 400, "prompt", "token-id"),
    "endless token": ("/v1/completions", {"prompt": [10**30]}, 400, "prompt", "token-id"),
    "long prompt": ("/v1/completions", {"prompt": [1] * 66}, 400, "prompt", "context_length_exceeded"),
    "unknown": ("/v1/completions", {"prompt": "a", "temprature": 1}, 400, "temprature", "unknown_parameter"),
    "a type": ("/v1/completions", {"prompt": "a", "max_tokens": "9"}, 400, "max_tokens", "invalid_value"),
    "a bound": ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature", "invalid_value"),
    "none at all": ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens", "invalid_value"),
    "logprobs": ("/v1/completions", {"prompt": "a", "logprobs": 260}, 400, "logprobs", "invalid_value"),
    "bias": ("/v1/completions", {"prompt": "a", "logit_bias": {"999": 1}}, 400, "logit_bias", "invalid_value"),
    "stop": ("/v1/completions", {"prompt": "a", "stop": ["a", ""]}, 400, "stop[1]", "invalid_value"),
    "another model": ("/v1/completions", {"prompt": "a", "model": "gpt-4"}, 404, "model", "model_not_found"),
    "suffix": ("/v1/completions", {"prompt": "a", "suffix": "b"}, 400, "suffix", "unsupported_parameter"),
    "best of": ("/v1/completions", {"prompt": "a", "best_of": 3}, 400, "best_of", "unsupported_parameter"),
    "too many": ("/v1/completions", {"prompt": "a", "n": 100}, 400, "n", "invalid_value"),
    "blocks": ("/v1/completions", {"prompt": "a", "threshold": 0.5}, 400, "threshold", "invalid_value"),
    "no blocks": ("/v1/completions", {"prompt": "a", "decode": "adaptive"}, 400, "decode", "no-diffusion"),
    "no way": ("/v1/completions", {"prompt": "a", "decode": "magic"}, 400, "decode", "invalid_value"),
    "no messages": ("/v1/chat/completions", {"messages": []}, 400, "messages", "invalid_value"),
    "no content": ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400, "messages[0].content",
                   "missing_parameter"),
    "an image": ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url",
                 "image_url": {"url": "file:///etc/passwd"}}]}]}, 400, "messages[0].content[0]", "invalid_value"),
    "a template": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                   "chat_template": "{{ 7 * 7 }}"}, 400, "chat_template", "unknown_parameter"),
    "tools": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]},
              400, "tools", "unsupported_parameter"),
    "top without": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, 400,
                    "top_logprobs", "invalid_value"),
    "llama bias": ("/completion", {"prompt": "a", "logit_bias": [[1, "x"]]}, 400, "logit_bias", "invalid_value"),
    "no token left": ("/completion", {"prompt": "a", "logit_bias": [[n, False] for n in range(VOCAB)]}, 400,
                      "logit_bias", "logits-impossible"),
    "a penalty": ("/v1/completions", {"prompt": "a", "repetition_penalty": 5e-324}, 400, "repetition_penalty",
                  "invalid_value"),
    "two prompts": ("/completion", {"prompt": ["a", "b"]}, 400, "prompt", "invalid_value"),
    "a call": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant",
               "content": "", "tool_calls": [{"id": "x"}]}]}, 400, "messages[1].tool_calls", "unsupported_parameter"),
    "a file": ("/completion", {"prompt": "a", "grammar": "root ::= x"}, 400, "grammar", "unsupported_parameter"),
    "two texts": ("/tokenize", {"content": "a", "prompt": "b"}, 400, "content", "missing_parameter"),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_is_wrong_is_named(server: Running, case: str) -> None:
    path, body, status, param, code = ASKED[case]
    got, said, _ = server.ask("POST", path, body)
    assert (got, said["error"]["param"], said["error"]["code"]) == (status, param, code), said
    assert set(said["error"]) == {"message", "type", "param", "code"}
    if param:
        assert param in said["error"]["message"]


def test_templates_are_text_to_a_template_s_messages(server: Running) -> None:
    inside = "{{ messages }}{% include '/etc/passwd' %}"
    ids = server.post("/tokenize", messages=[{"role": "user", "content": inside}])["tokens"]
    assert text_of(ids).startswith(f"user: {inside}")


def test_a_server_may_have_a_template_and_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("{{ bos_token }}{{ messages[0].content }}{{ 'secret'.__class__.__mro__ }}")
    with running("--chat-template", str(file), "--name", "mine", "--max-tokens", "3") as own:
        assert own.ask("GET", "/v1/models")[1]["data"][0]["id"] == "mine"
        status, said, _ = own.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert (status, said["error"]["param"]) == (400, "messages"), "the sandbox shows no attribute with underscores"
        status, said, _ = own.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 4})
        assert (status, said["error"]["param"]) == (400, "max_tokens")
        said = own.post("/v1/completions", prompt="a", max_tokens=-1, temperature=0, ignore_eos=True)
        assert said["usage"]["completion_tokens"] == 3


def test_a_model_without_a_tokenizer_is_asked_by_ids(tmp_path: Path) -> None:
    write_seeded_model(tmp_path, SMALLEST)
    (tmp_path / "tokenizer.json").unlink()
    with running(model=tmp_path) as bare:
        (choice,) = bare.post("/v1/completions", prompt=PROMPT, max_tokens=4, temperature=0, logprobs=1)["choices"]
        assert (choice["text"], choice["token_ids"]) == ("", greedy(PROMPT, 4))
        assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in greedy(PROMPT, 4)]
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/tokenize", {"content": "a"})):
            status, said, _ = bare.ask("POST", path, body)
            assert (status, said["error"]["code"]) == (400, "no_tokenizer")
        status, said, _ = bare.ask("POST", "/v1/completions", {"prompt": [1], "stop": "a"})
        assert (status, said["error"]["param"]) == (400, "stop")
