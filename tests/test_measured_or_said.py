"""Tables whose report may be missing say which command makes it; with a report they have its figures."""

import json

import markdown_tables
import pytest
import serving_tables
import sharding_tables

LOAD = {
    "refusing": [
        {"server": "tritgold serve", "clients": 96, "answered": 68, "refused": {"429": 28}, "failed": {},
         "retry_after": [1, 3], "requests_per_second": 2.0, "tokens_per_second": 64.0, "p99": 30.0,
         "refused_after": 0.05}
    ],
}  # fmt: skip
MIXES = {
    "rows": [{
        "backend": "xla", "mixes": 1000, "wrong": [],
        "counts": {"requests": 12_000, "greedy": 4000, "seeded": 8000, "cancelled": 900, "logits compared": 50_000,
                   "tokens of prompts reused": 9},
    }],
}  # fmt: skip
SERVED = {
    "machine": {"processor": "some", "cores": 2, "python": "3.13"}, "shape": "m", "date": "2026-11-30T01:02:03",
    "results": [
        {"row": "serve", "engine": engine, "threads": 1, "per_second": second,
         "case": {"clients": 4, "prompt": 64, "steps": 32, "way": way, "until": until},
         "timing": {"samples": 24, "p50": p50, "p95": p50 + 0.1, "p99": p50 + 0.2}}
        for engine, way in (("xla", "http"), ("xla", "direct"), ("llama.cpp", "http"))
        for until, second, p50 in (("first token", None, 0.1), ("end", 10.0, 1.2))
    ],
}  # fmt: skip
BITS = {
    "missing": 3,
    "rows": [{"model": "llama", "kv_cache": "f32", "formulation": "chosen", "over": ["1", "2", "4 processes"],
              "compared": ["trace", "logits"], "differing": [["2", "logits"]]}],
}  # fmt: skip
SCALING = {
    "sizes": {"prompt": 128, "layers": 6}, "predicted": {"seconds": 0.01},
    "measured": [
        {"devices": 1, "threads": 1, "step": 0.02, "prompt": 1.0},
        {"devices": 1, "threads": 2, "step": 0.012, "prompt": 0.6},
        {"devices": 2, "threads": 2, "step": 0.011, "prompt": 0.5, "collective": 6.5e-5,
         "collectives": {"a_token": 26}},
    ],
}  # fmt: skip
MEMORY = {
    "layers": 8, "file": 1_600_000_000,
    "processes": [{"share": 700_000_000, "held": 735_000_000, "most": 860_000_000, "of_share": 1.05,
                   "most_of_share": 1.23, "seconds": 40.0}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("table", "name", "report", "told"),
    [
        (serving_tables.load, "bench-notebook-2b-serve", SERVED, "; 3 rounds, each server in turn."),
        (serving_tables.load, "bench-notebook-2b-serve", SERVED,
         "| 4 | tritgold serve | 10 | 100 | 200 | 300 | 1,200 | 1,300 | 1,400 |"),
        (serving_tables.refusing, "serve-load", LOAD,
         "| tritgold serve | 96 | 68 | 28 by 429 | 1 to 3 s | 50 | none | 2 | 64 | 30,000 |"),
        (serving_tables.direct, "bench-notebook-2b-serve", SERVED,
         "| 4 | direct | 10 | 100 | 200 | 300 | 1,200 | 1,300 | 1,400 |"),
        (serving_tables.mixes, "serve-mixes", MIXES, "| xla | 1,000 | 12,000 | 4,000, 8,000 | 900 | 50,000 | 9 | 0 |"),
        (sharding_tables.bits, "sharding-bits", BITS, "| `llama` | f32 chosen | 1, 2, 4 processes | 4 | 1 |"),
        (sharding_tables.bits, "sharding-bits", BITS, "Not run yet: 3 of 4 rows."),
        (sharding_tables.scaling, "sharding", SCALING, "| 2 devices | 11.0 | 90.9 | 256 |"),
        (sharding_tables.scaling, "sharding", SCALING, "26 collectives a token, 65 us each; 6 layers."),
        (sharding_tables.memory, "sharding-memory", MEMORY, "| 0 | 700 | 735 | 860 | 123% | 40 |"),
    ],
)  # fmt: skip
def test_a_table_has_the_figures_of_its_report_or_names_the_command(table, name, report, told, tmp_path, monkeypatch):
    monkeypatch.setattr(markdown_tables, "FOLDER", tmp_path)
    assert table().startswith(("*Not measured yet: `make ", "*Not measured yet: `tritgold bench "))
    (tmp_path / "data").mkdir()
    (tmp_path / f"data/{name}.json").write_text(json.dumps(report))
    assert told in table()


def test_ours_stands_before_the_others_and_calls_beside_http(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown_tables, "FOLDER", tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/bench-notebook-2b-serve.json").write_text(json.dumps(SERVED))
    shown, direct = serving_tables.load(), serving_tables.direct()
    assert shown.index("tritgold serve") < shown.index("llama.cpp")
    assert ("direct" in shown, "llama.cpp" in direct) == (False, False)
