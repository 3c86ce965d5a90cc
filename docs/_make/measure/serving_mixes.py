"""Batch equals alone: random mixes of requests to the server's scheduler, each compared with its answer alone.

``python -m measure.serving_mixes --backend xla --mixes 1000 --out docs/data/serve-mixes.json``, once for each backend;
rows of earlier commands stay in the report. Exit status 1 where one differs.

Each of a few hundred requests, greedy and drawn with a seed, with stop tokens and without, with prompts that begin
alike over a whole chunk, is answered once by a scheduler that has it alone and keeps no prefix. A mix is a scheduler
over all sequences of the engine, or of the golden model with few pages, to which a dozen of them come at random
times, some of which are cancelled. Compared are the bits of all logits, the tokens and the reason; of one that is
cancelled, what it had. After each mix nothing may be held: no text, no position, no sequence of the engine.
"""

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measure.report import lines
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import possible
from tritgold.decode.sampling import Sampling, choose
from tritgold.decode.serving_options import Request, Serving
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.float32 import F32
from tritgold_conformance.serving.served_models import ReferenceModel, reference_model
from tritgold_conformance.serving.xla_scheduler import XlaScheduler

SCHEMA = "tritgold.serve_mixes/2"
SHAPE = Shape(seed=5, hidden=32, inter=48, layers=1, heads=2, kv_heads=1, context=300)
SEQUENCES, REQUESTS, IN_A_MIX = 4, 300, 12
CHUNK = 128


@dataclass(frozen=True)
class Asked:
    """A request as data: of its own ``choose`` every run has a new one."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop: tuple[int, ...] | None


@dataclass
class Answered:
    """rows: of the logits of each token, a hash. reason: None for one that was cancelled."""

    rows: list[str]
    tokens: list[int]
    reason: str | None


class Golden:
    """The golden model in place of the JAX engine. Its schedulers have few pages, so that some are taken back."""

    sequences = SEQUENCES

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint, self.config = checkpoint, checkpoint.config

    def scheduler(self, reuse: bool) -> ReferenceModel:
        """With chunks that prompts do not fill evenly."""
        config, positions = self.config, 2 * self.config.context
        memory = positions * config.layers * F32().bytes_per_token(config)
        return reference_model(self.checkpoint, Serving(self.sequences, 48, reuse), memory)


class Served:
    """A scheduler, and what its requests got. engine: a Golden, or the JAX engine."""

    def __init__(self, engine: Any, reuse: bool) -> None:
        self.scheduler: Any = engine.scheduler(reuse) if isinstance(engine, Golden) else XlaScheduler(engine, reuse)
        self._config = engine.config
        self._rows = dict[int, list[str]]()
        self.cancelled = set[int]()

    def submit(self, asked: Asked) -> int:
        """Its number."""
        rows: list[str] = []

        def chosen(logits: np.ndarray, text: Sequence[int]) -> int:
            rows.append(hashlib.sha256(np.ascontiguousarray(logits).tobytes()).hexdigest()[:16])
            return choose(possible(logits, self._config), asked.sampling, text)

        request = Request(asked.prompt, asked.max_tokens, stop=asked.stop, choose=chosen)
        number = self.scheduler.submit(request)
        self._rows[number] = rows
        return number

    def cancel(self, number: int) -> None:
        """End it now; what has ended stays so."""
        if number not in self.scheduler.outcomes:
            self.cancelled.add(number)
        self.scheduler.cancel(number)

    def answer(self, number: int) -> Answered:
        """Of a request that has ended."""
        outcome = self.scheduler.outcomes[number]
        reason = None if number in self.cancelled else str(outcome.reason)
        return Answered(self._rows[number], outcome.tokens, reason)

    def held(self) -> list[str]:
        """What is still held, when nothing may be."""
        scheduler = self.scheduler
        found = {"waiting and running": sum(scheduler.unfinished), "positions": scheduler.positions_in_use}
        if isinstance(scheduler, XlaScheduler):
            found |= self._held_of_slots(scheduler)
        return [name for name, count in found.items() if count]

    def _held_of_slots(self, scheduler: XlaScheduler) -> dict[str, int]:
        return {
            "slots": sum(not slot.free for slot in scheduler._slots),
            "positions that no prompt is kept in": sum(
                max(0, length - len(slot.kept))
                for length, slot in zip(scheduler.engine.lengths, scheduler._slots, strict=True)
            ),
        }


def requests(count: int, config: ModelConfig, seed: int = 1) -> list[Asked]:
    """A third of the prompts begin with the same whole chunk."""
    draw, found = random.Random(seed), list[Asked]()
    alike = tuple((11 * at) % min(251, config.vocab - 1) for at in range(CHUNK))
    for n in range(count):
        begins = alike if draw.random() < 0.3 else alike[: draw.choice([0, 0, 20])]
        prompt = begins + tuple(draw.randrange(config.vocab - 3) for _ in range(draw.randint(1, 40)))
        sampling = draw.choice([Sampling(), Sampling(1.0, seed=n), Sampling(0.8, 40, 0.9, 1.2, n)])
        stop = draw.choice([None, (), tuple(range(draw.randrange(9), config.vocab, 17))])
        found.append(Asked(prompt, draw.randint(1, 10), sampling, stop))
    return found


def alone(engine: Any, asked: Asked) -> Answered:
    """What it gets where nothing else is served, now or before."""
    served = Served(engine, reuse=False)
    number = served.submit(asked)
    while any(served.scheduler.unfinished):
        served.scheduler.step()
    return served.answer(number)


def differs(expected: Answered, got: Answered) -> bool:
    """Whether it is another answer; of one that was cancelled, whether what it had is not how the other begins."""
    count = len(got.rows)
    same = got.rows == expected.rows[:count] and got.tokens == expected.tokens[: len(got.tokens)]
    return not same or (got.reason is not None and (count, got.reason) != (len(expected.rows), expected.reason))


def mix(engine: Any, asked: list[Asked], expected: list[Answered], seed: int) -> tuple[Counter[str], list[Any]]:
    """(what happened, what was wrong) in one mix."""
    draw = random.Random(seed)
    served, counts, wrong = Served(engine, reuse=draw.random() < 0.8), Counter[str](), list[Any]()
    coming = [draw.randrange(len(asked)) for _ in range(IN_A_MIX)]
    numbers, chance = dict[int, int](), draw.choice([0.2, 0.6, 1.0])
    while coming or any(served.scheduler.unfinished):
        while coming and draw.random() < chance:
            which = coming.pop()
            numbers[served.submit(asked[which])] = which
        served.scheduler.step()
        if numbers and draw.random() < 0.05:
            served.cancel(draw.choice(list(numbers)))
    for number, which in numbers.items():
        got = served.answer(number)
        counts["requests"] += 1
        counts["logits compared"] += len(got.rows)
        counts["cancelled" if got.reason is None else f"ended: {got.reason}"] += 1
        counts["greedy" if asked[which].sampling == Sampling() else "seeded"] += 1
        if differs(expected[which], got):
            wrong.append({"mix": seed, "request": which})
    counts["tokens of prompts reused"] += served.scheduler.counters.reused
    wrong += [{"mix": seed, "held": name} for name in served.held()]
    return counts, wrong


def row(engine: Any, mixes: int, count: int) -> dict[str, Any]:
    """A row of the report. count: requests that are drawn from."""
    begin = time.process_time()
    asked = requests(count, engine.config)
    expected = [alone(engine, each) for each in asked]
    counts, wrong = Counter[str](), list[Any]()
    for seed in range(mixes):
        found, bad = mix(engine, asked, expected, seed)
        counts += found
        wrong += bad
        if seed % 50 == 49:
            print(f"{seed + 1} mixes, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return {
        "backend": "reference" if isinstance(engine, Golden) else "xla", "mixes": mixes, "different_requests": count,
        "sequences": engine.sequences, "counts": dict(sorted(counts.items())), "wrong": wrong,
        "processor_seconds": round(time.process_time() - begin),
    }  # fmt: skip


def _xla(checkpoint: Checkpoint) -> Any:
    from tritgold_conformance.engines.xla import open_engine

    return open_engine(checkpoint, SHAPE.context, sequences=SEQUENCES)


def main() -> None:
    """Write the report; exit status 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("reference", "xla"), required=True)
    parser.add_argument("--mixes", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    known = json.loads(given.out.read_text(encoding="utf-8"))["rows"] if given.out.exists() else []
    with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
        write_seeded_model(Path(folder), SHAPE)
        checkpoint = open_checkpoint(folder)
        engine = Golden(checkpoint) if given.backend == "reference" else _xla(checkpoint)
        found = row(engine, given.mixes, REQUESTS)
    rows = [*(one for one in known if one["backend"] != given.backend), found]
    given.out.write_text(lines({"schema": SCHEMA, "rows": rows}) + "\n", encoding="utf-8")
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
