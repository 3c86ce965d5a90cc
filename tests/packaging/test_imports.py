"""The import rules hold, JAX is optional, and both checks can fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK_JAX = "import sys; sys.modules['jax'] = None; sys.modules['jaxlib'] = None; "


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    roots = ":".join(str(root / folder) for folder in ("reference", "accelerated", "conformance"))
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--no-cache",
        "--config",
        str(root / "pyproject.toml"),
    ]
    return subprocess.run(command, cwd=root, env={"PYTHONPATH": roots}, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("reference", "accelerated", "conformance"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_rules_hold(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("reference/tritgold/rounding.py", "import tritgold_xla", "imports nothing of ours"),
        ("reference/tritgold/rounding.py", "import jax", "never jax"),
        ("reference/tritgold/quantize.py", "import tritgold.model", "inside the reference, downhill only"),
        ("accelerated/tritgold_xla/runtime/ieee.py", "import tritgold_xla.engine", "inside the XLA engine, downhill"),
        ("accelerated/tritgold_xla/engine.py", "import tritgold_xla.decode.block_program", "inside the XLA engine"),
        ("accelerated/tritgold_xla/runtime/flags.py", "import tritgold.quantize", "never its arithmetic"),
        ("accelerated/tritgold_xla/runtime/flags.py", "import tritgold.layers.rms_norm", "never its arithmetic"),
        (
            "conformance/tritgold_conformance/comparing/ties.py",
            "import tritgold_conformance.judging.judge",
            "inside conformance, downhill only",
        ),
        ("conformance/tritgold_conformance/judging/judge.py", "import tritgold_xla", "through its adapter alone"),
    ],
)
def test_the_import_check_can_fail(copy: Path, file: str, line: str, broken: str) -> None:
    path = copy / file
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint(copy)
    assert done.returncode == 1
    assert any(broken in text and "BROKEN" in text for text in done.stdout.splitlines()), done.stdout


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


COMMAND = "from tritgold_conformance.cli import main; main(args={!r})"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--ids", "256,72", "--max-tokens", "2"],
        ["check", "--engine", "reference", "--tokens", "3", "--no-speed", "--one-text"],
        ["inspect"],
        ["env"],
    ],
)
def test_everything_but_the_jax_engine_works_without_jax(arguments: list[str]) -> None:
    done = python(BLOCK_JAX + COMMAND.format(arguments))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["check"], ["run", "--ids", "1", "--backend", "xla"]])
def test_without_jax_the_jax_engine_says_what_to_install(arguments: list[str]) -> None:
    done = python(BLOCK_JAX + COMMAND.format(arguments))
    assert done.returncode == 3
    assert "MissingDependencyError" in done.stderr
    assert "pip install 'tritgold[xla]'" in done.stderr


def test_the_jax_block_blocks() -> None:
    assert python(BLOCK_JAX + "import jax").returncode != 0
    assert python("import jax").returncode == 0


def test_importing_the_reference_loads_neither_jax_nor_torch() -> None:
    listed = "import sys, tritgold.model, tritgold.checkpoint; print([m for m in ('jax', 'torch') if m in sys.modules])"
    assert python(listed).stdout.strip() == "[]"
    assert python("import jax; " + listed).stdout.strip() == "['jax']", "the check can fail"
