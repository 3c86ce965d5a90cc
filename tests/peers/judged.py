"""The peers, judged for real on the embedded models, and what explains each difference: docs/peers-judged.md.

    TRITGOLD_PEERS_PYTHON=... python tests/peers/judged.py > docs/data/peers-judged.json    (make judged-peers)

A peer is held to the mode that it claims. Where it differs, the golden model is run in the other modes, with the
attention that llama.cpp has by default, and with every fault of the library that has a place there. What is nearest to
the log-probabilities shown is named, with the positions at which it fits, those without it, and of the next best; and
the peer is judged again with it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from asked_once import judge
from measure.report import rounded, show
from q6_k_head import with_q6_k_head

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import TritgoldWarning
from tritgold.golden import trained_model
from tritgold.model import forward
from tritgold.trace import versions
from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.comparing.next_tokens import Completion, judge_text
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.engines.peers import PYTHON, with_plain_vocabulary
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
from tritgold_conformance.policies import named_policy
from tritgold_conformance.policies.attention import with_flash, without_flash
from tritgold_conformance.results.report import Report

HERE = Path(__file__).parent
TOKENS, SHOWN = 40, 2048
Rows = list[Completion | None]


@dataclass(frozen=True)
class Case:
    """engine: as for --engine; ``server``: llama.cpp's own on loopback, with ``options``. silu: in the config.

    policy: the precision that it is held to. head: the type of its head, where that is not float32: then the model is
    a TQ2_0 file.
    """

    engine: str
    model: str
    mode: str
    silu: bool = False
    options: tuple[str, ...] = ()
    policy: str = "float32"
    head: str = ""


CASES = (
    Case("transformers", "kjv-ar", "golden"),
    Case("transformers", "kjv-dlm", "golden"),
    Case("llama.cpp", "kjv-ar", "llama-cpp-q8_k"),
    Case("llama.cpp", "kjv-dlm", "llama-cpp-q8_k"),
    Case("llama.cpp", "kjv-ar", "llama-cpp-q8_k", silu=True),
    Case("llama.cpp", "kjv-dlm", "llama-cpp-q8_k", silu=True),
    Case("llama.cpp", "kjv-ar", "golden", silu=True),
    Case("server", "kjv-ar", "llama-cpp-q8_k", silu=True),
    Case("server", "kjv-ar", "llama-cpp-q8_k", silu=True, options=("--defaults",)),
    Case("transformers", "kjv-ar", "golden", policy="bf16"),
    Case("server", "kjv-ar", "llama-cpp-q8_k", silu=True, options=("--defaults",), policy="attention-f16"),
    Case("llama.cpp", "kjv-ar", "llama-cpp-q8_k", silu=True, head="q6_k", policy="head-q6_k"),
)


def main() -> None:
    """One JSON object on stdout; progress on stderr."""
    rows = []
    for case in CASES:
        print(case, file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
            rows.append(row_of(case, Path(folder)))
    command = "python tests/peers/judged.py"
    show(
        {"schema": "tritgold.peers-judged/1", "command": command, "machine": versions(), "tokens": TOKENS, "rows": rows}
    )


def row_of(case: Case, folder: Path) -> dict[str, Any]:
    """One case, judged."""
    path = model_of(case, folder)
    checkpoint = open_checkpoint(path)
    tokens = judging_tokens(TOKENS, checkpoint.config.vocab, seed=1)
    golden = GoldenRun.of(checkpoint, tokens, named_arithmetic(case.mode), named_policy(case.policy))
    with opened(case, checkpoint, path, folder) as engine:
        report = judge(golden, engine, case.model)
        completions = [engine.complete(tokens[: n + 1]) for n in range(TOKENS)] if report.exit_code else []
    what = {"engine": case.engine, "model": case.model, "silu": case.silu, "options": list(case.options)}
    what |= {"head": case.head} if case.head else {}
    return {**what, **outcome(report), "explained": explanation(golden, completions) if report.exit_code else None}


def model_of(case: Case, folder: Path) -> Path:
    """The embedded model, the same weights with SiLU in their config, or with another head."""
    path = trained_model(case.model)
    if not case.silu:
        return path
    if case.head:
        silu = model_of(replace(case, head=""), folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TritgoldWarning)
            convert(open_checkpoint(silu), folder / "h.gguf", "tq2_0", Options(architecture="bitnet", embedding="F32"))
        return with_q6_k_head(with_plain_vocabulary(folder / "h.gguf", open_checkpoint(silu)))
    shutil.copytree(path, folder / "silu")
    config = json.loads((folder / "silu" / "config.json").read_text())
    (folder / "silu" / "config.json").write_text(json.dumps({**config, "hidden_act": "silu"}))
    return folder / "silu"


@contextmanager
def opened(case: Case, checkpoint: Checkpoint, path: Path, folder: Path) -> Iterator[EngineUnderTest]:
    """The engine of a case, for as long as the block lasts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)  # that llama.cpp runs SiLU is what is measured here
        if case.engine != "server":
            yield load_engine(case.engine, path, checkpoint, TOKENS, policy=named_policy(case.policy))
            return
        convert(checkpoint, folder / "m.gguf", "tq2_0", Options(architecture="bitnet", embedding="F32"))
        with llama_cpp_server(with_plain_vocabulary(folder / "m.gguf", checkpoint), *case.options) as address:
            yield load_engine(f"{address}?logprobs={SHOWN}", path, checkpoint, TOKENS)


@contextmanager
def llama_cpp_server(model: Path, *options: str) -> Iterator[str]:
    """llama.cpp's server on a GGUF file, on a free port of this machine: its address."""
    words = [os.environ[PYTHON], str(HERE / "llama_cpp_server.py"), str(model), *options]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        address = server.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:"), address
        try:
            yield address
        finally:
            server.stdin.close()
            server.wait(30)


def outcome(report: Report) -> dict[str, Any]:
    """What of a report is recorded."""
    levels = {name: of for name, of in report.levels.items() if of.status != "not assessed"}
    speed = report.engine.speed
    reference = report.reference.speed
    return {
        "mode": report.mode,
        "versions": {key: Path(said).name for key, said in report.engine.versions.items()},
        "verdict": report.verdict,
        "levels": {n: {"status": of.status, "compared": of.compared, "note": of.note} for n, of in levels.items()},
        "speed": None if speed is None else {**rates(speed), "clock": speed.clock},
        "reference": None if speed is None or reference is None else rates(reference),
    }


def rates(speed: Any) -> dict[str, float | None]:
    """tokens/s, rounded: the fourth digit says nothing."""
    found = {"prefill": speed.prefill, "decode": speed.decode}
    return {name: None if rate is None else float(f"{rate:.3g}") for name, rate in found.items()}


# ---- what explains a difference --------------------------------------------------------------------------------------


def explanation(golden: GoldenRun, completions: Rows) -> dict[str, Any]:
    """The nearest of all candidates: its name, distances in nats, and the verdict of the judge with it."""
    base = Mutant(golden.checkpoint, golden.arithmetic)
    plain = distance(base, golden.tokens, completions)
    assert plain is not None
    made = dict(candidates(base))
    far = {name: distance(mutant, golden.tokens, completions) for name, mutant in made.items()}
    # Sorting keeps the order of equals: a mode stands before the fault that does the same.
    ranked = sorted(((of, name) for name, of in far.items() if of is not None), key=lambda found: found[0])
    (best, name), *others = ranked
    following, next_name = next(other for other in others if other[0] > (best[0], 1.001 * best[1]))
    result: dict[str, Any] = {"by": name, "positions": -best[0], "nats": rounded(best[1])}
    result |= {"without": -plain[0], "without_nats": rounded(plain[1])}
    result |= {"next": next_name, "next_positions": -following[0], "next_nats": rounded(following[1])}
    verdict = judge_text(GoldenRun.of(made[name].checkpoint, golden.tokens, made[name].arithmetic), completions)
    return {**result, "conforms_with_it": not verdict.failing, "note": verdict.note}


def candidates(base: Mutant) -> Iterator[tuple[str, Mutant]]:
    """Every mode, llama.cpp's attention with its default cache, and every fault of the library that has a place."""
    for mode in ("golden", "llama-cpp-q8_k"):
        if named_arithmetic(mode) != base.arithmetic:
            yield f"mode {mode}", replace(base, arithmetic=named_arithmetic(mode))
    for name, changed in (("f16-attention", without_flash), ("f16-flash-attention", with_flash)):
        yield f"arithmetic {name}", replace(base, arithmetic=changed(base.arithmetic))
    for fault in FAULTS.values():
        if (made := fault.apply(base)) is not None:
            yield f"fault {fault.name}", made


def distance(mutant: Mutant, tokens: list[int], completions: Rows) -> tuple[int, float] | None:
    """How near a golden model is to the log-probabilities shown, smaller is nearer: minus the number of positions at
    which all of them are within float noise, and the median over positions of a position's largest difference, nats.

    None where the mutant cannot be run. No tie is followed: after a broken one, positions are off by 1e-2 and more.
    """
    c = mutant.checkpoint
    try:
        with np.errstate(all="ignore"):
            cache = mutant.new_cache(c.config, len(tokens))
            logits = forward(tokens, c.weights, c.config, cache, arithmetic=mutant.arithmetic)
    except Exception:  # whatever is raised where a fault of one scale a token meets a mode of one a block
        return None
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    ours = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    worst, within = [], 0
    for row, completion in zip(ours, completions, strict=True):
        if completion is not None and completion[1]:
            ids = list(completion[1])
            worst.append(float(np.abs(row[ids] - np.array(list(completion[1].values()))).max()))
            within += worst[-1] <= LOGIT_NOISE * float(np.abs(row).max())
    return (-within, float(np.median(worst))) if worst and np.isfinite(worst).all() else None


if __name__ == "__main__":
    main()
