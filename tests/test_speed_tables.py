"""The front page's table of speeds and those of docs/speed-limits.md, from reports made up for it."""

import json

import limit_tables
import markdown_tables
import pytest
import speed_tables

from tritgold_conformance.bench.shapes import shape_of

WHOLE = shape_of("2b-4t").config().as_dict()


def row(engine, name, case, seconds, ratio=None, threads=1, **more):
    return {
        "row": name, "engine": engine, "threads": threads, "case": case, "timing": {"median": seconds, "p95": seconds},
        "per_second": case.get("tokens", case.get("sequences", 1)) / seconds, "ratio": ratio,
        "roofline_fraction": None, **more,
    }  # fmt: skip


def report(*results, date="2026-11-30", flags=None, jax="0.12.0", **more):
    machine = {"processor": "Intel(R) Xeon(R) Processor", "packages": {"jax": jax}, "variables": {"XLA_FLAGS": flags}}
    empty = {"bandwidth": [{"threads": 1, "best": 2e10}], "engines": [], "profiles": [], "config": WHOLE}
    return {"date": date, "machine": machine, "shape": "2b-4t", "results": list(results), **empty, **more}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that puts a report into the folder from which the tables are made."""
    (tmp_path / "data").mkdir()
    for module in (markdown_tables, speed_tables, limit_tables):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    return lambda name, made: (tmp_path / f"data/bench-{name}.json").write_text(json.dumps(made))


def beside(ratios, **more):
    rows = [row("xla", "decode", {"context": 64}, 0.1)]
    return report(*rows, *(row(peer, "decode", {"context": 64}, 0.1 * r, r) for peer, r in ratios.items()), **more)


def test_the_front_page_shows_the_strongest_peer_and_the_newest_figure_of_each(write):
    write("2b-4t-old", beside({"ik_llama.cpp": 0.5, "llama.cpp": 2.0}, date="2026-11-01"))
    write("2b-4t-new", beside({"ik_llama.cpp": 1.5}))
    (line,) = speed_tables.front().splitlines()[2:]
    assert "| Intel Xeon | 1 | 10 | ik_llama.cpp | 6.67 | **1.50** |" in line
    assert "bench-2b-4t-new.json" in line


def test_a_row_without_ik_llama_cpp_says_so(write):
    write("2b-4t", beside({"llama.cpp": 2.0}))
    assert "| llama.cpp (ik_llama.cpp not timed) |" in speed_tables.front()


def test_the_front_page_shows_fewer_instructions_as_a_processor_of_their_own(write):
    write("2b-4t", beside({"ik_llama.cpp": 1.5}))
    write("2b-4t-avx2", beside({"llama.cpp": 0.99}, flags="--xla_cpu_max_isa=AVX2"))
    usual, restricted = speed_tables.front().splitlines()[2:]
    assert "| Intel Xeon |" in usual
    assert "**1.50**" in usual
    assert "| Intel Xeon, ours held to AVX2 |" in restricted
    assert "**0.99**" in restricted
    assert "0.99" not in limit_tables.goals()


def test_an_old_jax_is_not_on_the_front_page(write):
    write("2b-4t-old-jax", beside({"llama.cpp": 0.1}, jax="0.4.36"))
    assert speed_tables.front().splitlines()[2:] == []


def test_a_start_that_was_measured_again_is_shown_once(write, tmp_path):
    machine = {"cores": 2, "python": "3.13"}
    for name, date, seconds in (("2b-4t", "2026-11-01", 10.1), ("2b-4t-start", "2026-11-30", 2.2)):
        made = report(row("xla", "start", {"cache": "warm"}, seconds), date=date, command="tritgold bench")
        write(name, {**made, "machine": {**made["machine"], **machine}})
    shown = speed_tables.bench()
    assert "start: measured again since, in 2b-4t-start" in shown
    assert ("10,100" in shown, "2,200" in shown) == (False, True)


def test_batches_that_were_not_measured_name_the_command(write):
    write("2b-4t", beside({"ik_llama.cpp": 1.3}))
    assert limit_tables.several().startswith("*Not measured yet: `tritgold bench --shape 2b-4t --rows batch ")


def goal(name):
    """The cells of a goal's row."""
    (line,) = [line for line in limit_tables.goals().splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_goal_is_held_against_the_strongest_peer_and_bold_where_it_is_missed(write):
    write("2b-4t", beside({"ik_llama.cpp": 1.3, "ik_llama.cpp+q4_0": 1.1, "llama.cpp": 2.0}))
    assert goal("decoding at context 64") == ["1.2", "1.30 of ik_llama.cpp", "not measured"], "float16 heads alone"
    write("2b-4t", beside({"ik_llama.cpp": 1.1}))
    assert goal("decoding at context 64") == ["1.2", "**1.10** of ik_llama.cpp", "not measured"]


def test_goals_of_the_engine_alone(write):
    size = limit_tables.model_bytes(shape_of("2b-4t"))
    batches = [row("xla", "batch", {"sequences": n}, s, threads=2) for n, s in ((1, 0.1), (8, 0.2), (32, 0.64))]
    blocks = row("xla", "block-diffusion", {"block": 32, "passes": 4, "tokens": 64}, 8.0)
    step = row("xla", "decode", {"context": 64}, 0.1) | {"roofline_fraction": 0.74}
    start = row("xla", "start", {"cache": "warm"}, 2.2)
    engines = [{"threads": 1, "warm_memory": 1.26 * size}, {"threads": 2, "warm_memory": 1.24 * size}]
    write("2b-4t", report(*batches, blocks, step, start, engines=engines))
    assert goal("a batch of 32") == ["6.0", "not measured", "**5.0**"]
    assert "| 8 | 2 | 200.0 | 40.0 | 4.0 |" in limit_tables.several()
    assert goal("a pass over 33") == ["10.0", "10.0", "not measured"]
    assert goal("share of the read bandwidth") == ["0.75", "**0.74**", "not measured"]
    assert goal("path to first token") == ["3.0 s", "2.2 s", "not measured"]
    assert goal("resident memory") == ["1.25", "**1.26**", "1.24"]


def test_a_profile_is_grouped(write):
    parts = [("q", 0.01, 10**8), ("down", 0.03, 5 * 10**8), ("head", 0.04, 6 * 10**8), ("attention", 0.002, 4 * 10**6),
             ("attn_norm", 0.001, 0), ("q select", 0.002, 0)]  # fmt: skip
    parts = [{"name": name, "seconds": s, "bytes_moved": moved} for name, s, moved in parts]
    one = {"threads": 2, "context": 64, "parts": parts, "step": 0.09, "roof": 1.6e10}
    write("2b-4t-two", report(profiles=[one]))
    expected = "| 2 | 64 | 90.0 | 40.0 (15.0) | 40.0 (15.0) | 2.0 (2.0) | 3.0 | 16.0 | [2b-4t-two]"
    assert expected in limit_tables.profiles()


def test_one_matrix_beside_whole_prompts(write):
    assert limit_tables.one_matrix().startswith("*Not measured yet: `tritgold bench --shape 6912x2560 ")
    way = {"matrix": "6912x2560"}
    products = [
        row("xla", "gemm", {**way, "tokens": 8, "way": name}, s)
        for name, s in (("select", 0.002), ("int8-dot", 0.003), (limit_tables.PRODUCT, 0.001))
    ]
    unpack = row("xla", "unpack", {**way, "way": limit_tables.UNPACKED}, 0.0015)
    write("6912x2560", report(*products, unpack))
    whole, by_matrix = limit_tables.sizes("2b-4t")[0], 6912 * 2560
    prompts = [("xla", 0.28), ("ik_llama.cpp", 0.20), ("ik_llama.cpp+q4_0", 0.19)]
    write("2b-4t-ik", report(*(row(engine, "prefill", {"tokens": 8}, s) for engine, s in prompts)))
    own, peer = (f"{1e3 * s * by_matrix / whole:.2f}" for s in (0.28, 0.19))
    assert f"| 8 | 1 | 2.00 | 1.50 | 1.00 | 3.00 | {own} | {peer} |" in limit_tables.one_matrix()
