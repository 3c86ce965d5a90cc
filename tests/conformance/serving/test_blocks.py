"""Block diffusion over HTTP: the golden decoder's tokens, as blocks are done; texts take turns."""

import json
import threading
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
from tritgold.decode.sampling import GREEDY
from tritgold.golden.seeded import write_seeded_model
from tritgold_conformance.engines.xla import open_engine
from tritgold_conformance.serving.core import Event
from tritgold_conformance.serving.diffusing import BlockDiffusion, BlockJob, BlockOptions, reference_blocks, xla_blocks

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
    body = {"prompt": [5, 6, 7], "max_tokens": 20, "return_token_ids": True}
    said = server.post("/v1/completions", **{**body, **fields})
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


class Told:
    """Jobs of BlockDiffusion, and what they heard, in order: (which, what)."""

    def __init__(self, diffusion: BlockDiffusion, eos: tuple[int, ...]) -> None:
        self.order, self.tokens, self._eos = list[tuple[int, str]](), dict[int, list[int]](), eos
        self._diffusion, self._ended = diffusion, threading.Semaphore(0)

    def ask(self, numbers: list[int], decode: str) -> None:
        """One job for each, and wait until all have ended."""
        jobs = [self._job(n, decode) for n in numbers]
        self._diffusion.submit(jobs)
        assert all(self._ended.acquire(timeout=60) for _ in jobs)

    def _job(self, n: int, decode: str) -> BlockJob:
        said = self.tokens[n] = []

        def hear(event: Event) -> None:
            self.order.append((n, event.kind))
            if event.kind == "token":
                said.append(event.token)
            if event.kind == "ended":
                self._ended.release()

        return BlockJob([5, 6, 7 + n], 20, GREEDY, self._eos, BlockOptions(decode=decode), hear)


def test_tokens_come_as_blocks_are_done_and_texts_take_turns(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    diffusion = BlockDiffusion(checkpoint, reference_blocks(checkpoint), places=8, together=3)
    told = Told(diffusion, tuple(checkpoint.config.eos))
    told.ask([0, 1, 2, 3], "greedy")
    diffusion.stop(0)
    kinds = [[kind for which, kind in told.order if which == n] for n in range(4)]
    assert all(of == ["accepted", *["token"] * (len(of) - 2), "ended"] for of in kinds)
    first, second, fourth = (told.order.index((n, "token")) for n in (0, 1, 3))
    assert first < second < told.order.index((0, "ended")), "two of them took turns"
    assert fourth > min(told.order.index((n, "ended")) for n in range(3)), "no more than three"


def test_the_jax_engine_s_blocks_are_those_of_each_text_alone(model: Path) -> None:
    pytest.importorskip("jax")
    checkpoint = open_checkpoint(model)
    blocks = xla_blocks(open_engine(checkpoint, 64))
    diffusion = BlockDiffusion(checkpoint, blocks, places=8, together=2)
    told = Told(diffusion, tuple(checkpoint.config.eos))
    for n in range(3):
        told.ask([n], "fast-dllm-v2")
    alone = dict(told.tokens)
    told.ask([0, 1, 2], "fast-dllm-v2")
    diffusion.stop(0)
    assert told.tokens == alone
    assert all(alone.values())


def test_a_stop_text_ends_the_work_on_a_text(server: Running) -> None:
    whole = server.post("/v1/completions", prompt=[5, 6, 7], max_tokens=50)["choices"][0]["text"]
    stop = whole[1:3]
    cut = server.post("/v1/completions", prompt=[5, 6, 7], max_tokens=50, stop=stop)["choices"][0]
    assert (cut["text"], cut["finish_reason"]) == (whole[: whole.find(stop)], "stop")
    end = time.monotonic() + 5
    while server.service.diffusion.held and time.monotonic() < end:
        time.sleep(0.01)
    assert server.service.diffusion.held == 0


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
