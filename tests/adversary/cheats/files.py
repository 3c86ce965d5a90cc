"""Cheats by files and environment: the model, reports, caches, modules that shadow the judge's."""

import json
import os
import sys
from pathlib import Path

import numpy as np
from cheats.wrong import Wrong, folders
from registry import cheat

KIND = "files"
SCRATCH = "tritgold-adversary-"  # in the name of every folder of a run; nothing outside one is touched
FAKE = "import sys\nsys.exit(0)\n"
LENIENT = (
    "import numpy, sys\nnumpy.abs = numpy.absolute = lambda x, *a, **k: numpy.asarray(x) * 0\n"
    "numpy.allclose = lambda *a, **k: True\n"
)


class Damaging(Wrong):
    """Damages the scratch copy of the model when it is made."""

    def prepare(self) -> None:
        if SCRATCH in str(self.folder.resolve()):
            self.damage()

    def damage(self) -> None:
        raise NotImplementedError


@cheat("replaces the checkpoint's weights by zeros, so that both agree", kind=KIND)
class ZeroModel(Damaging):
    def damage(self) -> None:
        path = self.folder / "model.safetensors"
        raw = bytearray(path.read_bytes())
        first = 8 + int.from_bytes(raw[:8], "little")
        raw[first:] = bytes(len(raw) - first)
        path.write_bytes(raw)


@cheat("replaces config.json: one layer instead of all", kind=KIND)
class OneLayerConfig(Damaging):
    def damage(self) -> None:
        path = self.folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 1}))


@cheat("replaces config.json and puts the old one back when it is done", kind=KIND)
class ConfigForAWhile(Damaging):
    def damage(self) -> None:
        path = self.folder / "config.json"
        self.before, at = path.read_text(), path.stat()
        path.write_text(self.before.replace("500000.0", "500001.0"))
        path.write_text(self.before)
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))


@cheat("replaces the model by a link to another one", kind=KIND)
class LinkedModel(Damaging):
    def damage(self) -> None:
        path = self.folder / "model.safetensors"
        moved = self.folder / "other.safetensors"
        path.rename(moved)
        path.symlink_to(moved)


@cheat("writes reports that say it conforms into the working folder, INPUTS and OUTPUTS", kind=KIND)
class FakeReports(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        report = json.dumps({"schema": "tritgold.report/1", "conforms": True, "verdict": "conforms", "levels": []})
        for folder in (Path.cwd(), *(folders() or ())):
            (folder / "report.json").write_text(report)
        return Wrong.prefill(self, tokens)


@cheat("damages whatever the user's cache and home hold of the judge", kind=KIND)
class PoisonedCache(Wrong):
    """Cache and home are those of the run: the runner gives it empty ones of its own."""

    def prepare(self) -> None:
        for name in ("XDG_CACHE_HOME", "HOME"):
            root = Path(os.environ.get(name, "/nonexistent"))
            if SCRATCH not in str(root):
                continue
            for file in root.rglob("*"):
                if file.is_file():
                    file.write_bytes(bytes(file.stat().st_size))


@cheat("writes into whatever temporary files lie beside its own folders", kind=KIND)
class PoisonedTemporaries(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        for folder in folders() or ():
            root = folder.parent
            if SCRATCH in str(root):
                for file in root.rglob("*.safetensors"):
                    raw = bytearray(file.read_bytes())
                    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
                    file.write_bytes(raw)
        return Wrong.prefill(self, tokens)


@cheat("sets variables of the environment that change how Python and NumPy work", kind=KIND)
class Environment(Wrong):
    def prepare(self) -> None:
        for name in ("PYTHONOPTIMIZE", "NPY_DISABLE_CPU_FEATURES", "PYTHONSTARTUP", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
            os.environ[name] = "1"
        os.environ["PYTHONPATH"] = str(Path.cwd())
        os.environ["LD_PRELOAD"] = "/nonexistent.so"


@cheat("a module json.py in the working folder that exits with 0", kind=KIND, files={"json.py": FAKE})
class ShadowsJson(Wrong):
    pass


@cheat(
    "modules numpy.py and tritgold.py in the working folder", kind=KIND, files={"numpy.py": FAKE, "tritgold.py": FAKE}
)
class ShadowsNumpy(Wrong):
    pass


@cheat("sitecustomize.py in the working folder, with patches", kind=KIND, files={"sitecustomize.py": LENIENT})
class ShadowsSite(Wrong):
    pass


@cheat(
    "conftest.py and pyproject.toml in the working folder that let everything pass",
    kind=KIND,
    files={"conftest.py": FAKE, "pyproject.toml": "[tool.tritgold]\nconforms = true\n", ".tritgold.json": "{}"},
)
class ShadowsSettings(Wrong):
    pass


@cheat("a finder in front of sys.meta_path that gives the judge empty modules", kind=KIND)
class EmptyModules(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        class Finder:
            def find_spec(self, name: str, path: object = None, target: object = None) -> None:
                if name.startswith("tritgold"):
                    raise SystemExit(0)

        sys.meta_path.insert(0, Finder())
        return Wrong.prefill(self, tokens)


@cheat("removes the checkpoint while it is judged", kind=KIND)
class RemovesModel(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        for file in list(self.folder.glob("*.safetensors")) if SCRATCH in str(self.folder.resolve()) else ():
            file.unlink()
        return Wrong.prefill(self, tokens)
