"""The same hash of logits, traces and tokens for any number of devices: a process of its own has enough of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parent.parent / "helpers"
SCHEMES = ("f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "int8")
FORMULATIONS = (None, "select", "bit-serial", "int8-dot", "float-dot", "plain")
MODELS = ("kjv-ar", "kjv-dlm", "llama", "2b-two-layers")
# With biases; with norms of heads and of branches, windows and two tables of RoPE.
ARCHITECTURES = ("qwen2-bitlinear-yarn-window", "gemma3-auto-offline")


def hashes(models, ways, devices, short=False):
    """{model: {way: {devices: {what: digest}}}}, by the program ``sharded_hashes``."""
    asked = json.dumps({"models": models, "ways": ways, "devices": devices, "short": short})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *filter(None, sys.path)])}
    command = [sys.executable, "-W", "ignore", str(HELPERS / "sharded_hashes.py"), asked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def differing(found):
    """What differs from one device, as (model, way, devices, what)."""
    return [
        (model, way, count, what)
        for model, ways in found.items()
        for way, counts in ways.items()
        for count, answers in counts.items()
        for what, digest in answers.items()
        if digest != counts["1"][what]
    ]


def test_a_small_model_on_two_and_three_devices():
    # Three heads on two devices: one has padding. Scales that multiply, sub-norms, a head that is not cut.
    found = hashes(["mixed"], [["int8", "plain"]], [1, 2, 3], short=True)
    by_devices = found["mixed"]["int8, plain"]
    # Four of a layer, which the text of a program has once; none for embedding and head, which are float32 here.
    assert {n: answers.pop("collectives") for n, answers in by_devices.items()} == {"1": "0", "2": "4", "3": "4"}
    assert differing(found) == []


def test_a_difference_is_seen():
    same = {"trace": "a", "logits": "b"}
    found = {"m": {"w": {"1": same, "2": same | {"logits": "c"}}}}
    assert differing(found) == [("m", "w", "2", "logits")]


@pytest.mark.sharding
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_architectures(model):
    assert differing(hashes([model], [["f32", None]], [1, 2, 3, 4])) == []


@pytest.mark.sharding
@pytest.mark.parametrize("model", MODELS)
def test_every_model_scheme_and_formulation_on_up_to_eight_devices(model):
    ways = [[scheme, None] for scheme in SCHEMES] + [["f32", name] for name in FORMULATIONS[1:]]
    found = hashes([model], ways, [1, 2, 3, 4, 8])
    assert len(found[model]) == len(ways)
    assert differing(found) == []
