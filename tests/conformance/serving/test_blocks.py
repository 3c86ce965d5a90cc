"""Block diffusion over HTTP: the golden decoder's tokens, one text after the other."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import SMALLEST, Running, running

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_presets import preset
from tritgold.golden.seeded import write_seeded_model

MASK, BLOCK = 258, 8
YAML = """
port: 0
dlm: {block_size: 8, threshold: 0.3, small_block_size: 4, decode_mode: adaptive}
scheduler: {max_sequences: 3, enable_radix_cache: false}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    write_seeded_model(folder, SMALLEST)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"bd_size": BLOCK, "mask_token_id": MASK}))
    return folder


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Running]:
    with running(model=model) as made:
        yield made


def golden(model: Path, way: str, threshold: float = 0.9, **sizes: Any) -> list[int]:
    checkpoint, options = open_checkpoint(model), preset(way, threshold, **sizes)
    blocks = reference_block_model(checkpoint.weights, checkpoint.config, options, 30)
    return block_diffusion([5, 6, 7], checkpoint.config, blocks, 20, options).tokens


def asked(server: Running, **fields: Any) -> list[int]:
    said = server.post("/v1/completions", prompt=[5, 6, 7], max_tokens=20, return_token_ids=True, **fields)
    ids: list[int] = said["choices"][0]["token_ids"]
    return ids


def test_a_model_of_blocks_is_decoded_as_it_was_trained(server: Running, model: Path) -> None:
    assert asked(server) == golden(model, "fast-dllm-v2")
    assert asked(server, decode="adaptive", threshold=0.5) == golden(model, "adaptive", 0.5)
    assert asked(server, decode="greedy") == golden(model, "greedy")
    assert asked(server, threshold=0.2, sub_block=4) == golden(model, "fast-dllm-v2", 0.2, sub_block=4)
    assert len(asked(server, decode="ar", temperature=0, ignore_eos=True)) == 20


def test_a_stream_is_the_same_text(server: Running) -> None:
    whole = server.post("/v1/completions", prompt=[5, 6, 7], max_tokens=20)["choices"][0]
    _, text, _ = server.ask("POST", "/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 20, "stream": True})
    events = [json.loads(line[6:])["choices"][0] for line in text.split("\n\n") if line.startswith("data: {")]
    assert "".join(event["text"] for event in events) == whole["text"]
    assert events[-1]["finish_reason"] == whole["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 1}, "logprobs"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"sub_block": 3}, "sub_block"),
        ({"prompt": [5, MASK]}, "prompt"),
        ({"decode": "llada", "prompt": [1] * 40, "max_tokens": 30}, "prompt"),
    ],
)
def test_what_blocks_have_not_is_named(server: Running, fields: dict[str, Any], param: str) -> None:
    status, said, _ = server.ask("POST", "/v1/completions", {"prompt": [5, 6, 7], **fields})
    assert (status, said["error"]["param"]) == (400, param), said


def test_what_is_given_up_stops_before_its_next_pass(server: Running) -> None:
    diffusion = server.service.diffusion
    with pytest.raises(TimeoutError):
        server.ask("POST", "/v1/completions", {"prompt": [5], "n": 16, "max_tokens": 60}, timeout=0.05)
    end = time.monotonic() + 5
    while diffusion.held and time.monotonic() < end:
        time.sleep(0.01)
    assert diffusion.held == 0
    assert asked(server)


def test_a_server_s_yaml_is_honoured(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "dlm.yaml"
    file.write_text(YAML)
    with running("--config", str(file), model=model) as made:
        assert made.service.decode == "adaptive"
        assert made.service.core.model.serving.max_sequences == 3
        assert made.service.core.model.radix is None
        assert asked(made) == golden(model, "adaptive", 0.3)
        assert asked(made, threshold=0.8) == golden(model, "adaptive", 0.8)
