"""Which part of which tensor is where: integers alone."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import LLAMA, MIXED

from tritgold.errors import EngineError
from tritgold.weights import LINEARS, VECTORS
from tritgold_xla.runtime.flags import cpu_devices
from tritgold_xla.sharding.partition import CUTS, Plan, cut_of
from tritgold_xla.sharding.split import OneDevice, Split

DEVICES = (2, 3, 4, 8)


@pytest.mark.parametrize("config", [LLAMA, MIXED, replace(MIXED, heads=20, kv_heads=5)], ids=["llama", "mixed", "2b"])
@pytest.mark.parametrize("devices", DEVICES)
def test_parts_cover_the_whole_once_and_in_order(config, devices):
    plan = Plan.of(config, devices)
    for unit in ("heads", "kv_heads", "inter", "vocab"):
        parts = [plan.part(unit, device) for device in range(devices)]
        covered = [index for part in parts for index in range(plan.full(unit))[part]]
        assert covered == list(range(plan.full(unit)))
        assert all(part.stop - part.start <= plan.width(unit) for part in parts)


def test_groups_of_query_heads_stay_with_their_key_head():
    plan = Plan.of(replace(MIXED, heads=20, kv_heads=5), 2)
    assert (plan.local.heads, plan.local.kv_heads) == (12, 3)
    assert plan.part("heads", 1) == slice(12 * plan.config.head_dim, 20 * plan.config.head_dim)
    alone = Plan.of(LLAMA, 4)  # one key head: the first device has it, the others have padding alone
    assert [alone.part("kv_heads", device) for device in range(4)] == [slice(0, 10), *[slice(10, 10)] * 3]


def test_rows_of_the_vocabulary_can_be_kept_together():
    assert Plan.of(LLAMA, 2, rows_together=4096).rows == 4096
    assert Plan.of(LLAMA, 2).rows == 51


def test_every_tensor_has_a_row_and_one_without_is_an_error():
    assert set(CUTS) == {*LINEARS, *VECTORS, "final_norm", "embedding", "head", "sin", "cos"}
    with pytest.raises(EngineError, match=r"o_bias.*partition") as raised:
        cut_of("o_bias")
    assert raised.value.kind == "partition"


def test_what_a_program_is_compiled_for_compares_equal():
    assert OneDevice() == OneDevice()
    assert hash(OneDevice()) == hash(OneDevice())
    assert Split(Plan.of(LLAMA, 2)) == Split(Plan.of(LLAMA, 2)) != Split(Plan.of(LLAMA, 3))
    assert Split(Plan.of(LLAMA, 2)) != OneDevice()


@pytest.mark.parametrize("count", [0, -1, 2.0, True, np.int64(2)])
def test_a_number_of_devices_that_is_none(count):
    with pytest.raises(EngineError) as raised:
        cpu_devices(count)
    assert raised.value.kind == "devices"


def test_fewer_devices_than_asked_for_name_the_remedy():
    with pytest.raises(EngineError, match="XLA_FLAGS=--xla_force_host_platform_device_count=999") as raised:
        cpu_devices(999)
    assert raised.value.kind == "devices"
