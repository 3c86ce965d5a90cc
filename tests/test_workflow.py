"""Continuous integration on a code host runs what .ci/run does, on every Python that the project names."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_the_workflow_calls_ci_run_on_every_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pythons = jobs["linux"]["strategy"]["matrix"]["python"]
    assert pythons == [f"3.{minor}" for minor in range(11, 15)]
    assert all(f"Python :: {python}" in project for python in pythons)
    assert any(step.get("run", "").endswith(".ci/run") for step in jobs["linux"]["steps"])
    assert "peers" not in str([step.get("run") for step in jobs["macos"]["steps"]])


def test_the_hooks_are_ruff() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]
