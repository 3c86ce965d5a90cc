"""Each version of an engine in an environment of its own, installed from a package registry: below build/scoreboard."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scoreboard.manifest import EngineEntry, Install

ROOT = Path(__file__).parents[3]
INSTALL_SECONDS = 1800.0
READY = ".ready"


class UnavailableError(Exception):
    """The engine is not available on this machine; the text is the reason."""


@dataclass(frozen=True)
class Place:
    """Where a version of an engine is. values: for the placeholders of its way in."""

    folder: Path
    values: dict[str, str]

    def filled(self, text: str, **more: str) -> str:
        """The text with its placeholders filled."""
        for name, value in {**self.values, **more}.items():
            text = text.replace("{" + name + "}", value)
        return text

    def hidden(self, text: str, **more: str) -> str:
        """The text with this machine's paths replaced by the names of their placeholders, in capitals."""
        named = {**{k: v for k, v in self.values.items() if "/" in v}, **more, "repository": str(ROOT)}
        for name, value in sorted(named.items(), key=lambda one: -len(one[1])):
            text = text.replace(value, name.upper())
        return text


def place(engine: EngineEntry, version: str, root: Path) -> Place:
    """The environment; installed if it is not there yet. Raises UnavailableError."""
    folder = (root / f"{engine.name.replace('/', '-').lstrip('@')}-{version}").absolute()
    programs, install = Path(__file__).with_name("programs"), engine.install
    values = {"programs": str(programs), "environment": str(folder), "version": version, "python": sys.executable}
    if install.variable:
        values["program"] = _built_by_user(install.variable, engine.build)
    if install.pip:
        values["python"] = str(_python(install, version, folder))
    if install.npm:
        values["node"] = _node(install.npm, version, folder)
    if install.cc:
        values["program"] = _compiled(ROOT / install.cc, folder)
    return Place(folder, values)


def _built_by_user(variable: str, build: str) -> str:
    program = os.environ.get(variable, "")
    if not (program and Path(program).is_file()):
        raise UnavailableError(f"not built here: {variable} names no program ({build})")
    return str(Path(program).absolute())


def _python(install: Install, version: str, folder: Path) -> Path:
    """A virtual environment with the packages; its interpreter."""
    python = folder / "bin" / "python"
    if not (folder / READY).exists():
        base = next((found for name in install.python if (found := _works(f"python{name}"))), sys.executable)
        _run([base, "-m", "venv", str(folder)])
        packages = [one.replace("{version}", version) for one in install.pip]
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *install.extra, *packages])
        (folder / READY).touch()
    return python


def _works(name: str) -> str | None:
    """The interpreter of this name, if it starts and has venv: a name on PATH may be a shim that fails."""
    found = shutil.which(name)
    if found is None:
        return None
    done = subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, check=False)
    return found if done.returncode == 0 else None


def _node(packages: list[str], version: str, folder: Path) -> str:
    node = shutil.which("node")
    if node is None:
        raise UnavailableError("node is not installed")
    if not (folder / READY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        names = [one.replace("{version}", version) for one in packages]
        _run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *names])
        (folder / READY).touch()
    return node


def _compiled(source: Path, folder: Path) -> str:
    """A C program of this repository, compiled by the machine's compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise UnavailableError("no C compiler is installed")
    folder.mkdir(parents=True, exist_ok=True)
    _run([compiler, "-O2", "-std=c99", "-o", str(folder / "engine"), str(source), "-lm"])
    return str(folder / "engine")


def _run(words: list[str]) -> None:
    """Raises UnavailableError with the last line of what it prints, if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"cannot be installed: {type(error).__name__}") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        program = Path(words[0]).name
        raise UnavailableError(f"cannot be installed: {program} says {' '.join(lines)[:300]}")
