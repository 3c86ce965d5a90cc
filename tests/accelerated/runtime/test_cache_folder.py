"""The folder in which compiled programs are kept: a second process compiles nothing, and what cannot be written."""

import os
import subprocess
import sys

import jax
import pytest

from tritgold.errors import OutputError
from tritgold_xla.runtime import cache_folder

KEEP = """
import sys
from pathlib import Path
import jax
from jax import monitoring
events = []
monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
if "early" in sys.argv:
    jax.jit(lambda x: x + 1)(1.0)
from tritgold_xla.runtime import cache_folder, flags
kept = cache_folder.keep_programs(Path(sys.argv[1]))
flags.jit(lambda x: x @ x.T)(jax.numpy.ones((8, 8)))
print(kept, events.count("cache_hits"), events.count("cache_misses"), jax.config.jax_compilation_cache_dir)
"""


def keep(folder, *words, **environment):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", KEEP, str(folder), *words],
        env={**inherited, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept, hits, misses, there = done.stdout.split()
    return kept == "True", int(hits), int(misses), there


def files(folder):
    return sorted(path.name for path in folder.rglob("*-cache"))


def test_a_second_process_compiles_nothing(tmp_path):
    kept, hits, misses, _ = keep(tmp_path / "not-there-yet")
    assert (kept, hits) == (True, 0)
    assert misses > 0
    made = files(tmp_path)
    assert len(made) == misses
    kept, hits, again, _ = keep(tmp_path / "not-there-yet", "early")  # what JAX compiled before makes no difference
    assert (kept, hits, again) == (True, misses, 0)
    assert files(tmp_path) == made


def test_programs_for_another_number_of_threads_are_others(tmp_path):
    *_, one = keep(tmp_path, NPROC="1")
    _, hits, _, two = keep(tmp_path, NPROC="2")
    assert hits == 0
    assert (one, two) == (str(tmp_path / "threads-1"), str(tmp_path / "threads-2"))


def test_a_folder_that_the_user_has_named_stays(tmp_path):
    own = str(tmp_path / "own")
    kept, *_, there = keep(tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=own)
    assert (kept, there) == (False, own)
    assert not (tmp_path / "ours").exists()


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    of_this_run = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        with pytest.raises(OutputError) as refused:
            cache_folder.keep_programs(tmp_path / "file" / "folder")
        assert refused.value.kind == "unwritable"
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", of_this_run)


def test_where_caches_are(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder.cache_folder() == tmp_path / "tritgold"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(cache_folder.Path, "home", lambda: tmp_path)
    assert cache_folder.cache_folder() == tmp_path / ".cache" / "tritgold"

    def homeless():
        raise RuntimeError

    monkeypatch.setattr(cache_folder.Path, "home", homeless)
    with pytest.raises(OutputError, match=r"set XDG_CACHE_HOME.*\[no-folder\]"):
        cache_folder.cache_folder()
