"""The soak of ``make soak``, for two seconds; an hour of it is in docs/data/serve-soak.json."""

import json
from pathlib import Path

import pytest
from measure import serving_soak

RECORDED = Path(__file__).parents[3] / "docs/data/serve-soak.json"


def test_two_seconds_of_all_kinds_of_clients() -> None:
    with serving_soak.served("reference") as (port, process):
        clients = serving_soak.Soak(port, serving_soak.some_requests(25))
        memory = clients.work(1.5, 0.8, process)
        counts = clients.counts
        assert not clients.wrong
        assert not [kind for kind in counts if kind.startswith("failed")], counts
        assert {"right, whole", "right, streams", "vanished", "half a request", "malformed, 400"} <= counts.keys()
        assert len(memory) >= 2
        clients.expected = [[([1], "", "stop")] for _ in clients.expected]
        clients.work(0.3, 0.3, process)
        assert clients.wrong, "an answer that is not what it is alone is seen"


@pytest.mark.parametrize(("backend", "seconds"), [("reference", 3600), ("xla", 3600)])
def test_a_long_run_was_recorded(backend: str, seconds: int) -> None:
    """Clients that gave up, on a machine that others used, are counted; nothing that was answered was wrong."""
    rows = {row["backend"]: row for row in json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]}
    row = rows[backend]
    assert row["seconds"] >= seconds
    assert not row["wrong"]
    failed = {kind: count for kind, count in row["counts"].items() if kind.startswith(("wrong", "failed"))}
    assert all(kind.endswith("TimeoutError") for kind in failed)
    assert sum(failed.values()) < 0.001 * row["requests"]
    later = row["mib"][len(row["mib"]) // 4 :]
    assert max(later) - min(later) < 0.05 * max(later), "memory is flat"
