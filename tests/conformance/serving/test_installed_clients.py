"""Clients of other languages and projects, unchanged: those that ``make clients`` installs, and curl.

Each is skipped where it is not there. TRITGOLD_CLIENTS names another folder than build/clients.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served import Running, alone, running, smallest

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.sampling import GREEDY
from tritgold.golden import trained_model
from tritgold.model import forward
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.comparing.logits import log_softmax

HERE = Path(__file__).parent
CLIENTS = Path(os.environ.get("TRITGOLD_CLIENTS", HERE.parents[2] / "build" / "clients")).absolute()
CHAT, PROMPT = (256, *b"user: Who art thou?\nassistant:"), (256, *b"In the")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as made:
        yield made


def expected(ids: tuple[int, ...], count: int = 8) -> str:
    return Tokenizer(smallest() / "tokenizer.json").decode(alone(ids, count, GREEDY, None)[0])


def needs(*paths: str) -> None:
    missing = [path for path in paths if not (CLIENTS / path).exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)} not in {CLIENTS}: make clients installs it")


def said(*words: str | Path, **environment: str) -> str:
    """What a program writes; it must end with 0."""
    variables = {**os.environ, "NO_PROXY": "127.0.0.1", "PYTHONPATH": "", **environment}
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=600, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    return found


def test_the_openai_client_of_npm(server: Running) -> None:
    needs("node_modules/openai")
    found = json.loads(said(node(), HERE / "clients/openai_client.cjs", CLIENTS, f"{server.url}/v1"))
    assert found["chat"] == found["streamed"] == found["gathered"] == expected(CHAT)
    assert found["usage"]["completion_tokens"] == found["chatUsage"]["completion_tokens"] == found["logprobs"] == 8
    assert (found["finish"], found["completion"], found["models"]) == ("length", expected(PROMPT), ["smallest"])
    assert found["refused"] == {
        "kind": "BadRequestError", "status": 400, "param": "stop[0]", "code": "invalid_value",
    }  # fmt: skip


def test_llama_cpp_s_client_for_pages(server: Running) -> None:
    needs("completion.js")
    found = json.loads(said(node(), HERE / "clients/completion_js.mjs", CLIENTS / "completion.js", server.url))
    assert (found["text"], found["stop"], found["predicted"]) == (expected(PROMPT), True, 8)
    assert found["events"] > 1


def test_llm(server: Running, tmp_path: Path) -> None:
    needs("venv/bin/llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- {{model_id: golden, model_name: smallest, api_base: '{server.url}/v1'}}\n"
        f"- {{model_id: text, model_name: smallest, api_base: '{server.url}/v1', completion: true}}\n"
    )
    words = ("-o", "temperature", "0", "-o", "max_tokens", "8", "--no-log")
    where = {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
    llm = CLIENTS / "venv/bin/llm"
    for more in ((), ("--no-stream",)):
        assert said(llm, "-m", "golden", "Who art thou?", *words, *more, **where) == expected(CHAT) + "\n"
        assert said(llm, "-m", "text", "In the", *words, *more, **where) == expected(PROMPT) + "\n"


def test_curl(server: Running) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = {"messages": [{"role": "user", "content": "Who art thou?"}], "max_tokens": 8, "temperature": 0}
    words = (curl, "-sS", "--fail", "-H", "Content-Type: application/json", f"{server.url}/v1/chat/completions", "-d")
    whole = json.loads(said(*words, json.dumps(body)))
    assert whole["choices"][0]["message"]["content"] == expected(CHAT)
    stream = said(*words, json.dumps(body | {"stream": True}), "-N")
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == expected(CHAT)
    assert stream.rstrip().endswith("data: [DONE]")
    assert json.loads(said(curl, "-sS", "--fail", f"{server.url}/health")) == {"status": "ok"}


QUESTIONS = [
    {"question": "In the beginning God created the heaven and the", "choices": [" earth", " sea"], "answer": 0},
    {"question": "The LORD is my", "choices": [" shepherd", " sword"], "answer": 0},
    {"question": "And God said, Let there be", "choices": [" light", " bread"], "answer": 0},
]
TASK = """
task: verses
dataset_path: json
dataset_kwargs: {{data_files: {{test: '{file}'}}}}
test_split: test
output_type: multiple_choice
doc_to_text: '{{{{question}}}}'
doc_to_choice: '{{{{choices}}}}'
doc_to_target: answer
target_delimiter: ''
metric_list: [{{metric: acc}}]
"""


def test_the_evaluation_harness_scores_as_the_golden_model(tmp_path: Path) -> None:
    """Local completions on a task of its own: each log-likelihood is the golden model's, computed without a server."""
    needs("venv/bin/lm_eval")
    (tmp_path / "verses.jsonl").write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS))
    (tmp_path / "verses.yaml").write_text(TASK.format(file=tmp_path / "verses.jsonl"))
    path = trained_model("kjv-ar")
    with running(model=path) as made:
        model = (
            f"model=smallest,base_url={made.url}/v1/completions,tokenizer={path},tokenizer_backend=huggingface,"
            "num_concurrent=2,max_retries=1"
        )
        words = ("run", "--model", "local-completions", "--model_args", model, "--tasks", "verses", "--include_path",
                 tmp_path, "--output_path", tmp_path / "out", "--log_samples", "--batch_size", "2")  # fmt: skip
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
        said(CLIENTS / "venv/bin/lm_eval", *words, **offline)
    (results,) = (tmp_path / "out").rglob("results_*.json")
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert len(rows) == len(QUESTIONS)
    right = 0
    for row in rows:
        golden = [likelihood(path, row["doc"]["question"], choice) for choice in row["doc"]["choices"]]
        np.testing.assert_allclose([float(one[0][0]) for one in row["resps"]], golden, atol=1e-9)
        right += int(np.argmax(golden)) == row["doc"]["answer"]
    assert json.loads(results.read_text())["results"]["verses"]["acc,none"] == pytest.approx(right / len(rows))


def likelihood(path: Path, text: str, choice: str) -> float:
    checkpoint, tokenizer = open_checkpoint(path), Tokenizer(path / "tokenizer.json")
    # The harness encodes without a BOS unless told otherwise.
    context, whole = (tokenizer.encode(one, False) for one in (text, text + choice))
    rows = [log_softmax(row) for row in forward(whole, checkpoint.weights, checkpoint.config)]
    return float(sum(rows[at - 1][whole[at]] for at in range(len(context), len(whole))))
