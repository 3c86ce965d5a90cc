"""The model of what a pass of block diffusion costs."""

import pytest
from scripts import script

block_cost = script("docs/_make/measure/block_cost.py")


def machine(**changed: float) -> object:
    given = {"cores": 1, "bandwidth": 1e9, "int8": 1e9, "floats": 1e9, "bits": 1e12} | changed
    return block_cost.Machine("", **given)


def test_a_step_reads_and_a_pass_multiplies() -> None:
    found = block_cost.cost(4_000_000, 1_000_000, machine())
    assert found.step == pytest.approx(4e6 / 4 / 1e9 + 2e6 / 1e9)
    assert found.whole_pass == pytest.approx(33 * 5e6 / 1e9)
    assert found.steps == pytest.approx(55)


def test_with_much_arithmetic_both_only_read() -> None:
    assert block_cost.cost(4_000_000, 1_000_000, machine(int8=1e15, floats=1e15)).steps == 1


def test_a_step_is_not_faster_than_its_population_counts() -> None:
    assert block_cost.cost(1_000_000, 0, machine(bits=1e9)).step == pytest.approx(1e-3)


def test_only_positions_that_predict_read_the_head() -> None:
    every, some = (block_cost.cost(0, 1_000_000, machine(), 32, predicted=n).whole_pass for n in (None, 8))
    assert (every, some) == pytest.approx((32e6 / 1e9, 8e6 / 1e9))


def test_cores_that_a_pass_takes() -> None:
    one = machine(bandwidth=1e9, int8=1e9)
    assert block_cost.cost(4_000_000, 0, one).steps == pytest.approx(132)
    assert block_cost.cores_needed(4_000_000, 0, one, 66) == 2
    assert block_cost.cores_needed(4_000_000, 0, one, 0.5) is None


def test_points_are_those_whose_passes_are_known() -> None:
    report = {
        "bandwidth": [{"threads": 1, "best": 20e9}],
        "config": block_cost.shape_of("2b-4t").config().as_dict(),
        "results": [
            {"row": row, "threads": 1, "case": case, "timing": {"median": seconds}}
            for row, case, seconds in (
                ("decode", {"context": 64}, 0.1),
                ("block-diffusion", {"block": 32, "passes": 4, "tokens": 64}, 8.0),
                ("block-diffusion", {"preset": "adaptive", "threshold": "0.9", "tokens": 64}, 8.0),
                ("block-diffusion", {"preset": "greedy", "threshold": "0", "tokens": 64}, 2.0),
                ("block-pass", {"preset": "fast-dllm-v2", "threshold": "1", "block": 32}, 1.4),
                ("block-pass", {"preset": "fast-dllm-v2-dual", "threshold": "1", "block": 32}, 0.8),
            )
        ],
    }
    by_passes, greedy, whole, narrow = block_cost.points(report)
    assert by_passes[1:4] == ("100.00", "1000.00", "10.0")
    assert by_passes[5:] == ("8.0", "0.80")
    assert greedy[5:] == ("32.0", "3.20")
    assert whole[2:4] == ("1400.00", "14.0")
    assert narrow[2:4] == ("700.00", "7.0"), "one of seven reads the block: (7 * 800 - 1400) / 6"
    assert float(narrow[4]) < float(whole[4]) < float(by_passes[4]), "8 and 32 positions, and 33 with all their logits"
