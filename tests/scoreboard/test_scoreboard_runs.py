"""Engines that hang, crash, fill memory or print garbage are rows of the scoreboard, and nothing of them is left."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scoreboard import run
from scoreboard.environments import UnavailableError, place
from scoreboard.limited import Ended, marked, run_limited
from scoreboard.manifest import Case, EngineEntry, Install, manifest
from scoreboard.results import Exam, read, write
from scoreboard.verdicts import row_of

from tritgold.errors import FormatError

CASE = Case(format="hf")


def entry(**fields: Any) -> EngineEntry:
    given = {"name": "it", "versions": ["1"], "languages": ["C"], "source": "here", "way": "cmd:false", "cases": [CASE]}
    return EngineEntry(**given | fields)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_command_ends_at_its_time_limit_and_its_children_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = (
        "import os, pathlib, subprocess, time\n"
        f"pathlib.Path({str(mark)!r}).write_text(os.environ['TRITGOLD_SCOREBOARD_RUN'])\n"
        "subprocess.Popen(['sleep', '60'], start_new_session=True); print('here', flush=True); time.sleep(60)"
    )
    ended = run_limited(python(program), {}, 0.5, 1000)
    assert (ended.how, ended.status, ended.stdout) == ("time", None, b"here\n")
    assert marked(mark.read_text()) == [], "its child has a session of its own, and is ended too"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_command_ends_at_its_memory_limit() -> None:
    fills = "x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(60)"
    ended = run_limited(python(fills), {}, 30, 150)
    assert (ended.how, 150 < ended.mib < 1000) == ("memory", True)


def test_a_command_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoreboard.limited.STDOUT_BYTES", 1 << 20)
    ended = run_limited(python("while True: print('x' * 1000)"), {}, 30, 1000)
    assert (ended.how, len(ended.stdout)) == ("output", 1 << 20)


def test_a_command_within_its_limits_is_read() -> None:
    ended = run_limited(python("import sys; print(1); sys.exit(3)"), {}, 30, 150)
    assert (ended.how, ended.status, ended.stdout) == ("ended", 3, b"1\n")


@pytest.mark.parametrize(
    ("program", "seconds", "status", "says"),
    [
        ("import os; os.abort()", 60, "crashes", "SIGABRT"),
        ("import time; time.sleep(99)", 2, "too slow", " s"),
        ("import sys; sys.exit('failed to load model')", 60, "refuses the file", "failed to load"),
        ("import sys; open(sys.argv[2] + '/answer.json', 'w').write('{')", 60, "could not be judged", "answer.json"),
    ],
)
def test_what_an_engine_does_wrong_is_a_row(
    program: str, seconds: float, status: str, says: str, tmp_path: Path
) -> None:
    folder = tmp_path / "environments" / "it-1"
    folder.mkdir(parents=True)
    (folder / "engine.py").write_text(program)
    engine = entry(way="cmd:{python} {environment}/engine.py")
    report = run.judged(engine, "1", tmp_path / "environments", run.Limits(seconds))
    (row,) = report.rows
    assert (row.status, report.unavailable) == (status, "")
    assert says in row.why
    assert row.command.startswith("tritgold check --engine 'cmd:PYTHON ENVIRONMENT/engine.py' --model MODEL ")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_an_engine_that_fills_memory_is_a_row_and_the_next_engine_is_judged(tmp_path: Path) -> None:
    fills = "x = bytearray(900 << 20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(60)"
    (tmp_path / "fills.py").write_text(fills)
    engines = [("fills", "cmd:{python} " + str(tmp_path / "fills.py")), ("next", "cmd:false")]
    (tmp_path / "engines.toml").write_text(
        "schema = 'tritgold.scoreboard-engines/1'\n"
        + "".join(
            f"[[engine]]\nname='{name}'\nversions=['1']\nlanguages=['C']\nsource='x'\nway='{way}'\n"
            "cases=[{format='hf'}, {format='hf', model='llama'}]\n"
            for name, way in engines
        )
    )
    words = ["--manifest", tmp_path / "engines.toml", "--environments", tmp_path, "--out", tmp_path / "out"]
    assert run.main([*map(str, words), "--model", "seeded", "--format", "hf", "--memory", "700"]) == 0
    found = [[row.status for row in read(path).rows] for path in sorted((tmp_path / "out").iterdir())]
    assert found == [["too much memory"], ["crashes"]]


@pytest.mark.parametrize(
    ("answers", "status"),
    [("time.sleep(99)", "too slow"), ("send(b'HTTP/1.0 200 OK\\r\\n\\r\\n{{{')", "could not be judged")],
)
def test_a_server_that_hangs_or_prints_garbage_is_a_row(answers: str, status: str, tmp_path: Path) -> None:
    program = (
        "import http.server, sys, time\n"
        "class Answers(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_error(404)\n"
        f"    def do_POST(self): send = self.wfile.write; {answers}\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Answers).serve_forever()"
    )
    engine = entry(way="", server=[*python(program), "{port}"])
    (row,) = run.judged(engine, "1", tmp_path, run.Limits(4)).rows
    assert row.status == status, row.why


@pytest.mark.parametrize("printed", [b"", b"\xff\x00garbage", b"[]", b'{"verdict": "conforms"', b"nan", b"{}", b"1"])
def test_a_judge_that_prints_no_report_is_a_row(printed: bytes) -> None:
    row, _ = row_of(CASE, Ended("ended", 0, printed, "oops", 1.0, 1.0), "it")
    assert (row.status, "oops" in row.why) == ("could not be judged", True)


def test_an_exam_counts_each_question_once() -> None:
    rows = [
        {"task": "add", "right": 3, "of": 4},
        {"task": "copy", "right": 4, "of": 4},
        {"task": "all", "right": 7, "of": 8},
    ]
    printed = {"xla": {"rows": rows}, "reference": {"rows": rows}, "silent": {"kind": "engine-output"}}

    def evaluated(words: list[str]) -> Ended:
        return Ended("ended", 0, json.dumps(printed[words[words.index("--engine") + 1]]).encode(), "", 1.0, 1.0)

    assert run.exam("xla", Path("model"), evaluated) == Exam(right=7, golden=7, of=8)
    assert run.exam("silent", Path("model"), evaluated) is None


def test_the_end_of_what_an_engine_says_is_kept() -> None:
    said = {"kind": "engine-crash", "message": "failed", "hint": "it said: " + "at a line | " * 99 + "missing tensor x"}
    row, _ = row_of(CASE, Ended("ended", 3, json.dumps(said).encode(), "", 1.0, 1.0), "it")
    assert (row.status, row.why[:6], row.why[-16:]) == ("refuses the file", "failed", "missing tensor x")
    assert len(row.why) < 420


def test_a_limit_that_was_passed_is_a_row() -> None:
    statuses = [
        row_of(CASE, Ended(how, None, b"", "", 1.0, 1.0), "it")[0].status for how in ("time", "memory", "output")
    ]  # type: ignore[arg-type]
    assert statuses == ["too slow", "too much memory", "too much output"]


def test_a_server_that_does_not_listen_is_a_row(tmp_path: Path) -> None:
    dies = entry(way="", server=python("print('error: no such tensor type'); raise SystemExit(1)"))
    (row,) = run.judged(dies, "1", tmp_path).rows
    assert (row.status, row.why) == ("crashes", "its server ended with 1: error: no such tensor type")
    missing = entry(way="", server=["/no/such/program"])
    (row,) = run.judged(missing, "1", tmp_path).rows
    assert (row.status, row.why) == ("crashes", "its server cannot be started: FileNotFoundError")


def test_an_engine_that_is_not_available_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.judged(entry(unavailable="too large"), "1", tmp_path).unavailable == "too large"
    monkeypatch.delenv("NO_SUCH_PROGRAM", raising=False)
    missing = entry(install=Install(variable="NO_SUCH_PROGRAM"), build="cmake")
    assert "NO_SUCH_PROGRAM names no program (cmake)" in run.judged(missing, "1", tmp_path).unavailable
    monkeypatch.setattr("scoreboard.environments.shutil.which", lambda name: None)
    for install in (Install(npm=["x"]), Install(cc="docs/examples/engine.c")):
        with pytest.raises(UnavailableError, match="installed"):
            place(entry(install=install), "1", tmp_path)


def test_a_failing_installation_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    assert "cannot be installed: false says" in run.judged(entry(install=Install(cc="x.c")), "1", tmp_path).unavailable


def test_a_newer_version_adds_a_report(tmp_path: Path) -> None:
    for version in ("1", "2"):
        report = run.judged(entry(unavailable="no"), version, tmp_path)
        path = write(report, tmp_path / "out")
        assert read(path) == report
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["it-1.json", "it-2.json"]
    path.write_text(path.read_text().replace("tritgold.scoreboard/1", "other"))
    with pytest.raises(FormatError, match="version"):
        read(path)


def test_a_name_that_is_not_in_the_manifest_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["no-such-engine"]) == 2
    assert "xllamacpp" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema = 'other'", "other"),
        ("[[engine]]\nname = 'a'", "engine"),
        ("[[engine]]\nname='a'\nversions=['1']\nlanguages=[]\nsource='x'", "way in, or the reason"),
        ("[[engine]]\nname='a'\nversions=['1']\nlanguages=[]\nsource='x'\nwy='x'", "wy"),
        (
            "[[engine]]\nname='a'\nversions=['1']\nlanguages=[]\nsource='x'\nway='x'\nopens=['tl1']\ncases=[{format='hf'}]",
            "opens tl1 without",
        ),
        (2 * "[[engine]]\nname='a'\nversions=[]\nlanguages=[]\nsource='x'\nunavailable='no'\n", "twice"),
    ],
)
def test_a_wrong_manifest_is_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "engines.toml"
    file.write_text(text if "schema" in text else f"schema = 'tritgold.scoreboard-engines/1'\n{text}")
    with pytest.raises(FormatError, match=says):
        manifest(file)
