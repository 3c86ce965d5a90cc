"""--devices: of the JAX engine alone, and with a remedy where JAX has started already."""

import os
import sys

import pytest
from tritgold_command import call, parsed

from tritgold_conformance.commands.judge_request import JudgeRequest
from tritgold_conformance.commands.launch import _ended

pytest.importorskip("jax")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "seeded", "--ids", "1", "--devices", 2), "several devices --devices (it has: none)"),
        (("serve", "seeded", "--devices", 2), "several devices --devices (it has: none)"),
        (("check", "--engine", "reference", "--devices", 2), "--devices is an option of the engine xla"),
        (("bench", "--engine", "reference", "--devices", 2), "--devices needs --engine xla"),
        (("bench", "--profile", "--devices", 2), "excludes --profile"),
        (("run", "seeded", "--ids", "1", "--backend", "xla", "--devices", 0), "1<=x<=1024"),
    ],
)
def test_who_has_no_devices(arguments, said):
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_bench_is_not_one_of_several_processes(monkeypatch):
    monkeypatch.setenv("TRITGOLD_COORDINATOR", "127.0.0.1:1")
    assert call("bench").exit_code == 2


def test_fewer_devices_than_asked_for():
    from tritgold_xla.runtime.flags import cpu_device

    cpu_device()  # JAX has started
    flags = os.environ.get("XLA_FLAGS")
    result = call("run", "seeded", "--backend", "xla", "--ids", "1", "--devices", 999, "--json")
    assert (result.exit_code, parsed(result)["kind"]) == (3, "devices")
    assert "--xla_force_host_platform_device_count=999" in parsed(result)["hint"]
    assert os.environ.get("XLA_FLAGS") == flags


def test_a_report_repeats_it():
    assert "--devices 2" in JudgeRequest("xla", devices=2).command()
    assert "--devices" not in JudgeRequest("xla").command()


class Child:
    def __init__(self, *codes):
        self._codes = list(codes)

    def poll(self):
        return self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]


@pytest.mark.parametrize(
    ("children", "code"),
    [
        ([Child(None, 0), Child(0)], 0),
        ([Child(1), Child(0)], 1),  # does not conform
        ([Child(0), Child(3)], 3),
        ([Child(0), Child(-9)], 3),
    ],
)
def test_the_exit_code_of_several_processes(children, code):
    assert _ended(children) == code


def test_a_process_that_does_not_end_after_another_failed(monkeypatch):
    monkeypatch.setattr(sys.modules[_ended.__module__], "GRACE", 0.1)
    assert _ended([Child(None), Child(-9)]) == 3
