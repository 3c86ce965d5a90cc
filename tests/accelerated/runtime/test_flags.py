import os
import re
import subprocess
import sys

import jax
import pytest

from tritgold.errors import EngineError, OutputError
from tritgold_xla.runtime import flags


@pytest.fixture
def unchecked():
    """The arithmetic is asserted once a process; here it is to be asserted again, and once more afterwards."""
    flags._assert_arithmetic.cache_clear()
    yield
    flags._assert_arithmetic.cache_clear()


def test_the_device_is_the_cpu():
    assert flags.cpu_device().platform == "cpu"


def test_another_platform_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(EngineError, match=r"found gpu, expected cpu\. set JAX_PLATFORMS=cpu.*\[platform\]"):
        flags.cpu_device()


def test_64_bit_types_are_refused():
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(EngineError, match=r"jax_enable_x64=True.*\[x64\]"):
            flags.cpu_device()
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(("name", "plain"), [("multiply", lambda a, b: a * b), ("divide", lambda a, b: a / b)])
def test_arithmetic_that_is_merged_or_rewritten_is_refused(monkeypatch, unchecked, name, plain):
    monkeypatch.setattr(flags, name, plain)
    with pytest.raises(EngineError, match=r"not IEEE 754.*\[arithmetic\]"):
        flags.cpu_device()


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_our_options_stand_over_the_users_flags():
    code = "from tritgold_xla.runtime import flags; print(flags.cpu_device().platform)"
    fast = "--xla_cpu_enable_fast_math=true --xla_cpu_enable_fast_min_max=true"
    done = run(code, XLA_FLAGS=fast)
    assert done.stdout == "cpu\n", done.stderr


def test_a_platform_that_somebody_chose_is_not_overruled():
    done = run("from tritgold_xla.runtime import flags; flags.cpu_device()", JAX_PLATFORMS="cuda")
    assert "found cuda, expected cpu" in done.stderr
    assert "[platform]" in done.stderr


KEEP = """
import sys
from pathlib import Path
import jax
from jax import monitoring
events = []
monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
if "early" in sys.argv:
    jax.jit(lambda x: x + 1)(1.0)
from tritgold_xla.runtime import flags
kept = flags.keep_programs(Path(sys.argv[1]))
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
            flags.keep_programs(tmp_path / "file" / "folder")
        assert refused.value.kind == "unwritable"
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", of_this_run)


def test_where_caches_are(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert flags.cache_folder() == tmp_path / "tritgold"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(flags.Path, "home", lambda: tmp_path)
    assert flags.cache_folder() == tmp_path / ".cache" / "tritgold"

    def homeless():
        raise RuntimeError

    monkeypatch.setattr(flags.Path, "home", homeless)
    with pytest.raises(OutputError, match=r"set XDG_CACHE_HOME.*\[no-folder\]"):
        flags.cache_folder()


LATE = """
import os
import re
from tritgold_xla.runtime import flags
flags.start_with(1, "--xla_cpu_multi_thread_eigen=true")
flags.cpu_device()
print(os.environ["NPROC"], os.environ["XLA_FLAGS"])
flags.start_with(1, "--xla_cpu_multi_thread_eigen=true")
flags.start_with(1)
flags.start_with()
"""


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("flags.start_with(2)", "threads: JAX has started with another setting.*found '1', expected '2'"),
        ("flags.start_with(xla_flags='--xla_dump_to=x')", "XLA_FLAGS: .*found '--xla_cpu.*expected '--xla_dump_to=x'"),
        ("os.environ['XLA_FLAGS'] = ''; flags.cpu_device()", "XLA_FLAGS: .*found '--xla_cpu.*expected ''"),
        ("os.environ['NPROC'] = '2'; flags.cpu_device()", "NPROC: .*found '1', expected '2'"),
    ],
)
def test_settings_in_time_and_too_late(then, said):
    in_time = {"NPROC": "3", "XLA_FLAGS": ""}
    done = run(LATE, **in_time)
    assert (done.returncode, done.stdout) == (0, "1 --xla_cpu_multi_thread_eigen=true\n"), done.stderr
    done = run(LATE + then, **in_time)
    assert re.search(rf"EngineError: {said}.*\[flags-late\]", done.stderr), done.stderr


def test_settings_are_too_late_where_somebody_else_has_started_jax():
    code = "import jax; jax.devices(); from tritgold_xla.runtime import flags; flags.start_with(2)"
    done = run(code, NPROC="1")
    if sys.platform == "linux":
        assert re.search(r"found '1', expected '2'.*\[flags-late\]", done.stderr), done.stderr
    assert run(code, NPROC="2").returncode == 0


def test_without_a_system_that_tells_our_own_start_is_known(monkeypatch):
    flags.cpu_device()
    monkeypatch.setattr(flags, "_threads_started", lambda: None)
    flags.start_with(flags.threads())
    with pytest.raises(EngineError, match="flags-late"):
        flags.start_with(flags.threads() + 1)


def test_threads_are_those_of_nproc_or_of_the_processors(monkeypatch):
    monkeypatch.setenv("NPROC", "5")
    assert flags.threads() == 5
    for nothing in ("0", "x", ""):
        monkeypatch.setenv("NPROC", nothing)
        assert flags.threads() == len(os.sched_getaffinity(0))
