"""The wheel as a user gets it: built, looked into, installed outside the repository, run. `make check` runs these."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)], check=True, capture_output=True
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, without JAX; returns its bin folder."""
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder, with_pip=True)
    binaries = folder / "bin"
    subprocess.run([str(binaries / "pip"), "install", "--quiet", str(wheel), "pytest"], check=True)
    return binaries


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    info = {top for top in tops if top.endswith(".dist-info")}
    assert tops - info == {"tritgold", "tritgold_xla", "tritgold_conformance"}
    assert not [n for n in names(wheel) if "/tests/" in n or n.endswith((".pyc", ".part"))]


def test_the_tools_of_the_makers_are_not_in_the_wheel(wheel: Path) -> None:
    folder = ROOT / "docs/_make"
    tools = {f"/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*.py")}
    assert {"/page_blocks.py", "/measure/kv_error.py", "/measure/model_card.py", "/scoreboard/run.py"} <= tools
    assert not [name for name in names(wheel) if name.endswith(tuple(tools))]
    assert not [name for name in names(wheel) if "measure" in name or "_make" in name or "scoreboard" in name]


def test_the_wheel_is_typed_licensed_and_small(wheel: Path) -> None:
    held = names(wheel)
    for package in ("tritgold", "tritgold_xla", "tritgold_conformance"):
        assert f"{package}/py.typed" in held
    assert any(n.endswith("licenses/LICENSE") for n in held)
    assert wheel.stat().st_size < 11_000_000


def test_the_data_of_the_wheel_are_at_most_13_megabytes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        data = [info.file_size for info in archive.infolist() if not info.filename.endswith((".py", ".typed"))]
    found = "four models of 2.3 MB and two of 0.8, their texts, and hashes of the cases"
    assert 2_000_000 < sum(data) < 13_000_000, found


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """As pip does where there is no wheel: name, members and bytes are those of the wheel of the repository."""
    build = [sys.executable, "-m", "build", "--outdir", str(tmp_path)]
    subprocess.run([*build, "--sdist", str(ROOT)], check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    for file in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "tests/test_docs.py"):
        assert (source / file).exists(), file
    subprocess.run([*build, "--wheel", str(source)], check=True, capture_output=True)
    again = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as here, zipfile.ZipFile(again) as there:
        assert there.namelist() == here.namelist()
        assert [name for name in here.namelist() if here.read(name) != there.read(name)] == []


def test_every_source_file_is_in_the_wheel(wheel: Path) -> None:
    held = set(names(wheel))
    for folder in ("reference", "accelerated", "conformance"):
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.css")]:
            assert str(path.relative_to(ROOT / folder)) in held
    for path in (ROOT / "reference/tritgold/golden").rglob("*.*"):
        assert path.suffix == ".pyc" or str(path.relative_to(ROOT / "reference")) in held


def test_the_hashes_of_the_conformance_cases_are_in_the_wheel(wheel: Path) -> None:
    """The cases themselves are not: they are written by a command, and compared with these."""
    assert "tritgold_conformance/case_vectors/manifest.json" in names(wheel)
    assert not [n for n in names(wheel) if n.endswith(("cases.json", "expected.safetensors"))]


def run(binaries: Path, *command: str) -> subprocess.CompletedProcess[str]:
    arguments = [str(binaries / command[0]), *command[1:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(arguments, cwd=binaries.parent, env=environment, capture_output=True, text=True, check=False)


def test_the_installed_package_is_the_release_and_none_of_it_is_the_repository(installed: Path) -> None:
    (project,) = [line for line in (ROOT / "pyproject.toml").read_text("utf-8").splitlines() if "version = " in line][
        :1
    ]
    assert run(installed, "tritgold", "--version").stdout.split()[-1] == project.split('"')[1]
    code = (
        "import tritgold, tritgold_conformance, sys; print(tritgold.__file__, tritgold_conformance.__file__, *sys.path)"
    )
    shown = run(installed, "python", "-c", code).stdout
    assert str(installed.parent) in shown
    assert str(ROOT) not in shown


def test_the_installed_command_judges(installed: Path) -> None:
    words = ("--engine", "reference", "--tokens", "4", "--one-text", "--report", "page.html")
    done = run(installed, "tritgold", "check", *words)
    assert done.returncode == 0, done.stderr
    assert "reference conforms at " in done.stdout
    assert "</style>" in (installed.parent / "page.html").read_text("utf-8")


def test_the_installed_suite_judges(installed: Path) -> None:
    suite = ("pytest", "--pyargs", "tritgold_conformance.suite", "--tritgold-engine", "reference", "-q")
    done = run(installed, *suite)
    assert done.returncode == 0, done.stdout
    assert "40 tokens: conforms" in done.stdout


def test_without_jax_the_installed_command_says_what_to_install(installed: Path) -> None:
    done = run(installed, "tritgold", "check")
    assert done.returncode == 3
    assert "pip install 'tritgold[xla]'" in done.stderr


def test_the_installed_command_writes_the_cases_that_were_recorded(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "tritgold", "vectors", str(tmp_path / "cases")).returncode == 0
    done = run(installed, "tritgold", "vectors", str(tmp_path / "cases"), "--check")
    assert done.returncode == 0, done.stderr
