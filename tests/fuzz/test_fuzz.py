"""50,000 damaged checkpoints over the three containers end in a typed error or open as a sound model; and what is no
such end is noticed, named and can be repeated.

``TRITGOLD_FUZZ_CASES=2000 pytest tests/fuzz`` for a quick look, ``make fuzz CASES=5000000`` for a long one.
"""

import json
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzzing
import numpy as np
import pytest
from file_maps import map_gguf, map_sglbitnt
from fuzzing import SEED, BadEndError, convert_and_look, damage_of, run_case, run_subject
from subject import Subject
from subjects import subjects

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import TARGETS
from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_values import GgufValues
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.sglbitnt_file import SglbitntFile
from tritgold.ternary import TernaryTensor

CASES = int(os.environ.get("TRITGOLD_FUZZ_CASES", "50000"))
FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def all_subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    return {subject.name: subject for subject in subjects(tmp_path_factory.mktemp("subjects"))}


@pytest.fixture
def gguf(all_subjects: dict[str, Subject]) -> Subject:
    return all_subjects["gguf"]


def test_fifty_thousand_damaged_checkpoints(all_subjects: dict[str, Subject]) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER, "--cases", str(CASES), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)["outcomes"]
    assert outcomes.keys() == all_subjects.keys()
    assert sum(sum(counts.values()) for counts in outcomes.values()) >= CASES
    for name, counts in outcomes.items():
        cases = sum(counts.values())
        # Not vacuous: damage is met in many places, and some of it is none to the reader.
        least = {"texts": 1, "config": 8, "config-gemma3": 8, "config-qwen2": 8, "config-granite": 8}.get(name, 12)
        assert cases < 1000 or len(counts) >= least, (name, counts)
        assert 0.05 * cases < counts["opens"] < 0.4 * cases or name == "texts" or cases < 1000, (name, counts)


# ---- what is damaged is sound, and the damage is aimed where it should be -----------------------------------------


def test_every_subject_is_sound(all_subjects: dict[str, Subject], tmp_path: Path) -> None:
    for name, subject in all_subjects.items():
        sound = Subject(name, 1, subject.files, subject.opened, lambda rng: {})
        assert run_subject(sound, tmp_path, SEED, range(1)) == {"opens": 1}


def test_sound_subjects_convert_to_whatever_holds_their_shapes(
    all_subjects: dict[str, Subject], tmp_path: Path
) -> None:
    """Else the cases that are converted would prove nothing."""
    for name, subject in all_subjects.items():
        here = tmp_path / name
        here.mkdir()
        for file, data in subject.files.items():
            (here / file).write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TritgoldWarning)  # of what an overlay passes over
            checkpoint = open_checkpoint(here / subject.opened)
        done = {to for to in TARGETS if convert_and_look(checkpoint, here, to) == ""}
        # Small rows, a window without a place in GGUF, divisors of RoPE without one in a config.json.
        fewer = {
            "config-granite": {"hf", "gguf-f32"},
            "config-gemma3": {"hf", "gguf-f32"},
            "config-qwen2": {"hf"},
            "gguf-llama3": {"gguf-f32"},
        }
        assert done >= fewer.get(name, {"hf", "i2_s", "gguf-f16", "gguf-f32"}), name
        assert done == set(TARGETS) or name != "gguf-types"


def test_the_map_of_a_gguf_is_what_its_reader_finds(all_subjects: dict[str, Subject], tmp_path: Path) -> None:
    for name, alignment in {
        "gguf": 64,
        "gguf-tokens": 32,
        "gguf-llama": 32,
        "gguf-types": 32,
        "gguf-dense": 32,
    }.items():
        data = all_subjects[name].files["m.gguf"]
        (tmp_path / "m.gguf").write_bytes(data)
        file, found = GgufFile(tmp_path / "m.gguf"), map_gguf(data, alignment)
        assert [item.key for item in found.items if item.key] == list(file.metadata)
        assert len(found.items) == len(file.metadata) + len(file.tensors)
        begins = sorted((tensor.offset, tensor.data.size) for tensor in file.tensors.values())
        assert [begin for begin, _ in found.payloads] == [begin for begin, _ in begins]
        assert all(size <= end - begin for (_, size), (begin, end) in zip(begins, found.payloads, strict=True))
        offsets = [number(data, f.at, f.width) for f in found.fields if f.what == "offset"]
        assert sorted(found.start + offset for offset in offsets) == [begin for begin, _ in begins]


def test_the_map_of_an_sglbitnt_file_is_what_its_reader_finds(all_subjects: dict[str, Subject], tmp_path: Path) -> None:
    for always in (False, True):
        data = all_subjects["sglbitnt-always" if always else "sglbitnt-optional"].files["m.bin"]
        (tmp_path / "m.bin").write_bytes(data)
        file, found = SglbitntFile(tmp_path / "m.bin"), map_sglbitnt(data, always)
        spans = [(tensor.offset, tensor.offset + tensor.data.size) for tensor in file.tensors.values()]
        assert found.payloads == spans
        assert len([f for f in found.fields if f.what == "scale"]) == len(file.tensors if always else file.scales)


def number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def test_a_case_depends_on_nothing_but_its_numbers(all_subjects: dict[str, Subject]) -> None:
    for subject in all_subjects.values():
        first = [damage_of(subject, SEED, case) for case in range(60)]
        again = [damage_of(subject, SEED, case) for case in reversed(range(60))]
        assert first == again[::-1]
        assert len({tuple(damaged.values()) for damaged in first}) > 50
        assert first != [damage_of(subject, SEED + 1, case) for case in range(60)]


# ---- the fuzzer can fail -----------------------------------------------------------------------------------------


def failure(subject: Subject, folder: Path, cases: int = 400) -> str:
    """What the first bad case says; the same case alone says it again."""
    with pytest.raises(BadEndError) as caught:
        run_subject(subject, folder, SEED, range(cases))
    text = str(caught.value)
    case = int(text.split("--case ")[1])
    assert f"repeat it: python tests/fuzz --only {subject.name} --seed {SEED} --case {case}" in text
    with pytest.raises(BadEndError) as again:
        run_case(subject, folder / subject.name, SEED, case)
    assert str(again.value).split(":")[0] == text.split(":")[0]
    return text


def unchecked(self: GgufValues, count: int, what: str) -> int:
    """GgufValues.take without its check."""
    self.at += count
    return self.at - count


def test_a_reader_that_reads_beyond_the_end(gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GgufValues, "take", unchecked)
    assert "unpack_from requires a buffer" in failure(gguf, tmp_path)


def test_a_reader_that_lets_code_3_through(gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packing, "check", lambda *_: None)
    monkeypatch.setattr(TernaryTensor, "__post_init__", lambda _: None)
    assert "AssertionError: layers.0." in failure(gguf, tmp_path)


def test_a_scale_that_is_not_finite(gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = TernaryTensor(np.zeros((16, 16), np.int8), np.float32(1))
    object.__setattr__(spoilt, "scale", np.asarray(np.float32("nan")))
    monkeypatch.setattr("tritgold.formats.stored_weights.PackedWeight.ternary", lambda _: spoilt)
    assert "AssertionError: layers.0." in failure(gguf, tmp_path)


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: object, **__: object) -> None:
        raise error

    return act


def spending(seconds: float) -> Callable[[Path], object]:
    def act(path: Path) -> object:
        begin = time.process_time()
        while time.process_time() - begin < seconds:
            pass
        return open_checkpoint(path)

    return act


def warning(path: Path) -> object:
    warnings.warn("overflow encountered in cast", RuntimeWarning, stacklevel=1)
    return open_checkpoint(path)


def hoarding(path: Path) -> object:
    return [bytearray(80_000_000), open_checkpoint(path)][1]


def printing_escapes(path: Path) -> object:
    raise FormatError("a name: \x1b[2J", kind="truncated", file=path)


@pytest.mark.parametrize(
    ("opening", "says"),
    [
        (raising(KeyError("dtype")), "KeyError: 'dtype'"),
        (raising(RecursionError("too deep")), "RecursionError"),
        (raising(MemoryError()), "MemoryError"),
        (hoarding, "80.0 MB"),
        (spending(0.1), "0.1"),
        (spending(30), "_Late: more than"),
        (warning, "RuntimeWarning: overflow"),
        (printing_escapes, "x1b[2J"),
    ],
)
def test_an_opening_that_ends_badly(
    gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: Callable[..., Any], says: str
) -> None:
    monkeypatch.setattr(fuzzing, "open_checkpoint", opening)
    monkeypatch.setattr(fuzzing, "SECONDS", 0.05)
    if opening is hoarding:
        monkeypatch.setattr(fuzzing, "SECONDS", 10)
    assert says in failure(gguf, tmp_path)


def test_a_converter_that_leaves_something_behind(
    gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: object, path: Path, to: str, options: object) -> None:
        path.with_name("converted.part").touch()
        raise FormatError("no", kind="unwritable", file=path)

    monkeypatch.setattr(fuzzing, "convert", convert)
    monkeypatch.setattr(fuzzing, "CONVERTED", 2)
    assert "left something behind" in failure_once(gguf, tmp_path)


def test_a_converter_that_writes_nothing(gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "convert", lambda *_: None)
    monkeypatch.setattr(fuzzing, "CONVERTED", 2)
    assert "left nothing" in failure_once(gguf, tmp_path)


def failure_once(subject: Subject, folder: Path) -> str:
    with pytest.raises(BadEndError) as caught:
        run_subject(subject, folder, SEED, range(400))
    return str(caught.value)


def test_an_inspection_that_refuses_what_opens(gguf: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "inspect_model", raising(FormatError("no", kind="sparse", file="m.gguf")))
    monkeypatch.setattr(fuzzing, "INSPECTED", 2)
    assert "opens, yet inspect refuses it: sparse" in failure(gguf, tmp_path)


def test_a_process_of_the_fuzzer_cannot_take_a_gigabyte() -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("the limit is Linux's")
    program = "import fuzzing, numpy; fuzzing.limit_memory(); numpy.ones(2 * fuzzing.HEADROOM, numpy.uint8)"
    path = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "reference" / "helpers")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert "MemoryError" in done.stderr
    half = program.replace("2 * fuzzing.HEADROOM", "fuzzing.HEADROOM // 2")
    assert (
        subprocess.run([sys.executable, "-c", half], check=False, env={**os.environ, "PYTHONPATH": path}).returncode
        == 0
    )


def test_a_failing_case_ends_the_command_with_1_and_can_be_repeated(tmp_path: Path) -> None:
    """The command itself, on a reader that is broken: a sitecustomize takes the check away in every process."""
    (tmp_path / "sitecustomize.py").write_text(
        "import tritgold.formats.gguf_values as f\n"
        "def take(self, count, what):\n    self.at += count\n    return self.at - count\n"
        "f.GgufValues.take = take\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, FOLDER, "--only", "gguf"]
    done = subprocess.run(
        [*command, "--cases", "400", "--jobs", "1"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    case = done.stderr.split("--case ")[1].split()[0]
    for env, good in ((environment, False), (dict(os.environ), True)):
        again = subprocess.run([*command, "--case", case], capture_output=True, text=True, check=False, env=env)
        assert (again.returncode == 0) is good
        kept = Path(again.stdout.split(": changed")[0])
        assert kept.name == "m.gguf"
        assert kept.is_file()


def test_any_number_of_a_generator_gives_damage(all_subjects: dict[str, Subject]) -> None:
    """A damage that fails would end a long run; the numbers here are others than those of the runs."""
    for subject in all_subjects.values():
        for seed in range(300):
            damaged = subject.damage(random.Random(seed))
            assert damaged.keys() <= subject.files.keys()
            assert damaged
