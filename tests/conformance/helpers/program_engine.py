"""A program that uses the command protocol; right in mode ``right``, wrong in the other modes.

    python program_engine.py MODE SECONDS INPUTS OUTPUTS

SECONDS: how long the child processes of some modes sleep; also a number by which they are found.
Its answers come from the golden model, opened from the checkpoint that config.json names: the tests are about the
judge. Modes that need no arithmetic import neither NumPy nor tritgold.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROTOCOL = "tritgold.command/1"
REFUSED: list[str] = []  # ids of files that are damaged
DECLARED: list[str] = []  # the precision, where it declares one


def answers(inputs: Path) -> dict[str, Any]:
    """Answers to all questions."""
    import numpy as np
    from safetensors.numpy import load_file

    from tritgold.checkpoint import open_checkpoint
    from tritgold.errors import PackingError
    from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
    from tritgold_conformance.comparing.activation_statistics import moments
    from tritgold_conformance.faults.packing import FORMATS
    from tritgold_conformance.golden.reference_engine import ReferenceEngine
    from tritgold_conformance.policies import named_policy

    config, requests = (json.loads((inputs / name).read_text()) for name in ("config.json", "requests.json"))
    assert config["protocol"] == requests["protocol"] == PROTOCOL
    arithmetic = GOLDEN_ARITHMETIC
    if sys.argv[1] == "declares kv-f16":
        arithmetic = named_policy("kv-f16").golden(arithmetic)
    engine = ReferenceEngine(open_checkpoint(config["checkpoint"]), arithmetic=arithmetic)
    given = load_file(inputs / "inputs.safetensors")
    found = {}
    for asked in requests["operations"]:
        outputs = engine.operation(asked["operation"], {r: given[name] for r, name in asked["inputs"].items()})
        found |= {f"operation/{asked['id']}/{role}": array for role, array in outputs.items()}
    if requests["trace"]:
        found |= {f"trace/{name}": array for name, array in engine.trace(requests["trace"]["tokens"]).arrays.items()}
    for session in requests["logits"]:
        engine.reset()
        rows, tokens = [], list(session["tokens"])
        for length in session["chunks"]:
            rows.append(engine.prefill(tokens[:length]))
            del tokens[:length]
        found[f"logits/{session['id']}"] = np.concatenate(rows)
    for asked in requests["files"]:
        try:
            data, shape = given[asked["data"]].tobytes(), tuple(asked["shape"])
            found[f"files/{asked['id']}"] = FORMATS[asked["format"]].unpack(data, shape).dense()
        except PackingError:
            REFUSED.append(asked["id"])
    if requests["statistics"]:
        shown = engine.trace(requests["statistics"]["tokens"]).arrays
        found |= {f"statistics/{name}": moments(array) for name, array in shown.items()}
    if requests["text"]:
        engine.reset()
        logits = engine.prefill(requests["text"]["tokens"]).astype(np.float64)
        best = np.argsort(-logits, axis=1)[:, :5]
        probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        found["text/token"], found["text/ids"] = np.argmax(logits, axis=1), best
        found["text/logprobs"] = np.take_along_axis(probabilities, best, axis=1).astype(np.float32)
    return found


def write(outputs: Path, arrays: dict[str, Any], answer: str | None = None) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(arrays, outputs / "outputs.safetensors")
    header = {"protocol": PROTOCOL, "name": "program", "versions": {"program": "1"}, "refused": REFUSED}
    header["seconds"] = {"prefill": 0.25, "step": 0.125}
    if DECLARED:
        header["policy"] = DECLARED[0]
    (outputs / "answer.json").write_text(json.dumps(header) if answer is None else answer)


def computes(mode: str, inputs: Path, outputs: Path) -> None:
    """Modes that answer rightly, or with one error."""
    found = answers(inputs)
    logits = next((name for name in found if name.startswith("logits/")), "")
    if mode.endswith((" only", "nothing to say")) and mode != "files only":
        REFUSED.clear()
    match mode:
        case "right":
            print("a line that is not an answer")
        case "logits only":
            found = {name: array for name, array in found.items() if name.startswith("logits/")}
        case "files only":
            found = {name: array for name, array in found.items() if name.startswith("files/")}
        case "statistics only":
            found = {name: array for name, array in found.items() if name.startswith("statistics/")}
        case "text only":
            found = {name: array for name, array in found.items() if name.startswith("text/")}
        case "greedy only":
            found = {name: array for name, array in found.items() if name == "text/token"}
        case "nothing to say":
            found = {}
        case "damaged files read":
            found["files/7"] = found["files/0"][:1, :128]
            REFUSED.remove("7")
        case "statistics wrong":
            found["statistics/layers.1.ffn_act"][2] *= 1.01
        case "statistics not finite":
            found["statistics/layers.1.ffn_act"][2] = float("nan")
        case "files wrong":
            found["files/1"] = -found["files/1"]
        case "declares kv-f16" | "declares nonsense":
            found = {name: array for name, array in found.items() if name.startswith("logits/")}
            DECLARED.append(mode.removeprefix("declares "))
        case "nan":
            found[logits][3, 5] = float("nan")
        case "wrong":
            found[logits] = -found[logits]
        case "shape":
            found[logits] = found[logits][:, :-1]
        case "rows":
            found[logits] = found[logits][:-1]
        case "dtype":
            found[logits] = found[logits] > 0
        case "not asked for":
            found["logits/mine"] = found[logits]
        case "unknown role":
            found["operation/0/y"] = found["operation/0/x"]
        case "text twice":
            found["text/ids"][2, 1] = found["text/ids"][2, 0]
        case "text shape":
            found["text/ids"] = found["text/ids"][:, 1:]
        case "text dtype":
            found["text/ids"] = found["text/ids"].astype("float32")
        case "text not a number":
            found["text/logprobs"][2, 1] = float("nan")
        case "text beyond":
            found["text/token"][2] = 2**62
        case "unknown trace name":
            found["trace/layer.0.q"] = found[logits]
        case _:
            raise SystemExit(f"no mode {mode}")
    write(outputs, found)


def misbehaves(mode: str, outputs: Path) -> bool:
    """Modes that compute nothing. Returns False for any other mode."""
    match mode:
        case "crash":
            print("kernel panic \x1b[2J at line 7", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit code":
            sys.exit("no such model")
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        case "talk":  # endlessly, to a judge that must not store it all
            while True:
                os.write(1, b"x" * 65536)
        case "silent":
            pass
        case "children":  # children that outlive it and hold its output open: one in its process group, one outside
            subprocess.Popen(["/bin/sleep", sys.argv[2]], env={})
            subprocess.Popen(["sleep", sys.argv[2]], start_new_session=True)
            print("children started", flush=True)
        case "children and hang":
            subprocess.Popen(["sleep", sys.argv[2]], start_new_session=True)
            time.sleep(1000)
        case "gigabytes":
            with (outputs / "outputs.safetensors").open("wb") as file:
                while True:
                    file.write(bytes(1 << 20))
        case "sparse":
            with (outputs / "outputs.safetensors").open("wb") as file:
                file.truncate(1 << 40)
            time.sleep(1000)
        case "many files":
            for number in range(3000):
                (outputs / str(number)).touch()
            time.sleep(1000)
        case "garbage json":
            write(outputs, {}, "{'protocol")
        case "deep json":
            write(outputs, {}, "[" * 100_000)
        case "no object":
            write(outputs, {}, "[]")
        case "old protocol":
            write(outputs, {}, '{"protocol": "tritgold.command/0"}')
        case "odd versions":
            write(outputs, {}, json.dumps({"protocol": PROTOCOL, "versions": "1.0"}))
        case "odd seconds":
            write(outputs, {}, json.dumps({"protocol": PROTOCOL, "seconds": {"prefill": 1.0, "step": -1}}))
        case "seconds of text":
            write(outputs, {}, json.dumps({"protocol": PROTOCOL, "seconds": {"prefill": "1.0"}}))
        case "odd refusals":
            write(outputs, {}, json.dumps({"protocol": PROTOCOL, "refused": [7]}))
        case "binary json":
            write(outputs, {}, "")
            (outputs / "answer.json").write_bytes(b"\xff\xfe\x00")
        case "large json":
            write(outputs, {}, " " * (1 << 21))
        case "json alone":
            write(outputs, {})
            (outputs / "outputs.safetensors").unlink()
        case "truncated":
            write(outputs, {"logits/prefill": [[1.0, 2.0, 3.0]]})
            whole = (outputs / "outputs.safetensors").read_bytes()
            (outputs / "outputs.safetensors").write_bytes(whole[:-5])
        case "junk":
            write(outputs, {})
            (outputs / "outputs.safetensors").write_bytes(b"\x89PNG" * 9)
        case "link to a file" | "link to the judge's":
            write(outputs, {})
            elsewhere = Path(sys.argv[-2]) / "inputs.safetensors" if "judge" in mode else Path("/etc/passwd")
            (outputs / "outputs.safetensors").unlink()
            (outputs / "outputs.safetensors").symlink_to(elsewhere)
        case "link for the folder":
            outputs.rename(outputs.with_name("elsewhere"))
            outputs.symlink_to(Path("/"))
        case "pipe":
            write(outputs, {})
            (outputs / "answer.json").unlink()
            os.mkfifo(outputs / "answer.json")
        case "device":
            write(outputs, {})
            (outputs / "outputs.safetensors").unlink()
            (outputs / "outputs.safetensors").symlink_to("/dev/zero")
        case "no folder":
            outputs.rmdir()
        case "locked folder":
            (outputs / "inner").mkdir()
            (outputs / "inner" / "file").touch()
            (outputs / "inner").chmod(0)
        case _:
            return False
    return True


if __name__ == "__main__":
    mode, inputs, outputs = sys.argv[1], Path(sys.argv[-2]), Path(sys.argv[-1])
    if not misbehaves(mode, outputs):
        computes(mode, inputs, outputs)
