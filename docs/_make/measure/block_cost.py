"""What a pass of block diffusion costs in steps of one token, as a model of two speeds, and the reports beside it.

    PYTHONPATH=docs/_make python -m measure.block_cost         prints the tables of docs/block-diffusion-cost.md

A step reads every weight once: its time is the larger of bytes / bandwidth and multiplications / rate. A pass over a
block of 32 reads 33 positions (the token before the block, and the block): the same bytes, 33 times the
multiplications, in the ternary layers and, since each masked position wants its logits, in the head. Attention, norms
and starting a program are left out: with short contexts they are a tenth of either.
"""

from dataclasses import dataclass
from typing import Any

from markdown_tables import FOLDER, data, table

from tritgold.config import ModelConfig
from tritgold_conformance.bench.memory import head_weights, ternary_weights
from tritgold_conformance.bench.shapes import ModelShape, shape_of

BLOCK, SUB_BLOCK = 32, 8
POSITIONS = BLOCK + 1
BYTES_TRIT, BYTES_HEAD = 1 / 4, 2.0  # two bit planes; bfloat16
CACHE = 32 << 20  # bytes: a model that lies in a processor's cache has another bandwidth than the memory's


@dataclass(frozen=True)
class Machine:
    """bandwidth: bytes a second that all cores together read. int8, floats: multiply-accumulates a second of one core,
    int8 of the ternary layers in a pass and float32 of the head; bits: those of one token by population counts.
    """

    name: str
    cores: int
    bandwidth: float
    int8: float
    floats: float
    bits: float


@dataclass(frozen=True)
class Cost:
    """Seconds of a step and of a pass."""

    step: float
    whole_pass: float

    @property
    def steps(self) -> float:
        """A pass in steps: also the tokens that a pass must decide for block diffusion to be as fast."""
        return self.whole_pass / self.step


def cost(
    trits: int,
    head: int,
    machine: Machine,
    positions: int = POSITIONS,
    bytes_head: float = BYTES_HEAD,
    predicted: int | None = None,
) -> Cost:
    """Of a model with so many ternary weights and so many in its head. predicted: positions with logits; None: all.

    >>> slow = Machine("", 1, 1e9, 1e9, 1e9, 1e12)
    >>> cost(4_000_000, 0, slow)  # a megabyte; four million products a position
    Cost(step=0.001, whole_pass=0.132)
    """
    read = (trits * BYTES_TRIT / machine.bandwidth, head * bytes_head / machine.bandwidth)
    rates = machine.cores * machine.int8, machine.cores * machine.floats
    step = max(read[0], trits / (machine.cores * machine.bits)) + max(read[1], head / rates[1])
    sums = zip((positions * trits, (predicted or positions) * head), read, rates, strict=True)
    return Cost(step, sum(max(memory, products / rate) for products, memory, rate in sums))


def cores_needed(trits: int, head: int, machine: Machine, tokens: float) -> int | None:
    """The fewest cores of such a machine with which a pass costs at most so many steps; None beyond 256."""
    for cores in range(1, 257):
        one = Machine(machine.name, cores, machine.bandwidth, machine.int8, machine.floats, machine.bits)
        if cost(trits, head, one).steps <= tokens:
            return cores
    return None


# Rates as they were measured (docs/xla-cpu.md and the reports): products of 32 tokens and more with int8, float32 dots,
# population counts from the cache. Bandwidth: what one or two cores of these machines read, and typical servers.
CORE = {"int8": 219e9, "floats": 90e9, "bits": 95e9}
MACHINES = (
    Machine("one core, 20 GB/s", 1, 20e9, **CORE),
    Machine("2 cores, 30 GB/s", 2, 30e9, **CORE),
    Machine("8 cores, 60 GB/s", 8, 60e9, **CORE),
    Machine("16 cores, 80 GB/s", 16, 80e9, **CORE),
    Machine("32 cores, 200 GB/s", 32, 200e9, **CORE),
    Machine("64 cores, 300 GB/s", 64, 300e9, **CORE),
    Machine("a GPU, 2 TB/s", 1, 2e12, int8=600e12, floats=300e12, bits=600e12),
)
NAMES = ("2b-4t", "falcon3-7b", "qwen2.5-32b")
NARROW = 224 / 331  # of kjv-dlm's passes with the sub-block cache, those that read a sub-block: docs/decoding.md


def sizes(name: str) -> tuple[int, int]:
    """Weights of a named model: ternary ones, and the head's."""
    shape = shape_of(name)
    assert isinstance(shape, ModelShape)
    return ternary_weights(shape.config()), head_weights(shape.config())


def by_machine() -> str:
    """A pass in steps: machines down, models across."""
    rows = []
    for machine in MACHINES:
        found = [cost(*sizes(name), machine).steps for name in NAMES]
        rows.append((machine.name, *(f"{steps:.1f}" for steps in found)))
    return table(("machine", *NAMES), rows)


def by_bandwidth() -> str:
    """The 2B model: cores that a pass of so many steps takes, by bandwidth. A step cannot be faster than memory."""
    trits, head = sizes(NAMES[0])
    rows = []
    for bandwidth in (20, 40, 80, 160, 320):
        machine = Machine("", 1, bandwidth * 1e9, **CORE)
        needed = [cores_needed(trits, head, machine, tokens) for tokens in (16, 8, 4, 2)]
        rows.append((f"{bandwidth} GB/s", *("more than 256" if n is None else str(n) for n in needed)))
    return table(("bandwidth", *(f"{tokens} tokens a pass" for tokens in (16, 8, 4, 2))), rows)


def with_sub_blocks() -> str:
    """The 2B model, Fast-dLLM v2: a pass over the block, over a sub-block, and the mean that kjv-dlm makes of them."""
    trits, head = sizes(NAMES[0])
    rows = []
    for machine in MACHINES:
        whole, part = (cost(trits, head, machine, n, predicted=SUB_BLOCK).steps for n in (BLOCK, SUB_BLOCK))
        mean = whole + NARROW * (part - whole)
        rows.append((machine.name, f"{whole:.1f}", f"{part:.1f}", f"{mean:.1f}"))
    return table(("machine", "the block", "a sub-block", "mean with the cache"), rows)


def measured() -> str:
    """Points of the reports in docs/data: a pass in steps, beside the model's with that report's own bandwidth."""
    rows = []
    for path in sorted((FOLDER / "data").glob("bench-*blocks*.json")):
        report = data(path.stem)
        rows += [(path.stem.removeprefix("bench-"), *point) for point in points(report)]
    head = ("report", "case", "step, ms", "a pass, ms", "in steps", "the model says", "tokens a pass", "speed-up")
    return table(head, rows)


Point = tuple[str, ...]


def points(report: dict[str, Any]) -> list[Point]:
    """Rows of block diffusion whose number of passes is known: with ``passes`` a block, all of them are made.

    A preset's rows say no passes: only ``iterative`` at 1, a token a pass until its limit of ten passes a block, and
    ``greedy``, one pass a block, are certain. The row ``block-pass`` is of single passes.
    """
    rows = [row for row in report["results"] if row["timing"] is not None]
    steps = {row["threads"]: row["timing"]["median"] for row in rows if row["row"] == "decode"}
    roofs = {one["threads"]: one["best"] for one in report["bandwidth"]}
    config: dict[str, Any] = report["config"]
    trits, head = _weights(config)
    cached = trits * BYTES_TRIT + head * BYTES_HEAD < CACHE

    def point(said: str, threads: int, seconds: float, tokens: float, positions: int, predicted: int) -> Point:
        """A row of the table. seconds: of a pass."""
        step, machine = steps[threads], Machine("", threads, roofs[threads], **CORE)
        model = "in a cache" if cached else f"{cost(trits, head, machine, positions, predicted=predicted).steps:.1f}"
        shown = f"{1e3 * step:.2f}", f"{1e3 * seconds:.2f}", f"{seconds / step:.1f}", model, f"{tokens:.1f}"
        return (said, *shown, f"{tokens * step / seconds:.2f}")

    found: list[Point] = []
    for row in (row for row in rows if row["row"] == "block-diffusion"):
        case = row["case"]
        made = {"passes": case.get("passes"), "iterative": 10, "greedy": 1}
        passes = made["passes"] or (made.get(str(case.get("preset"))) if str(case.get("threshold")) in "01" else None)
        if passes is None:
            continue
        blocks = -(-case["tokens"] // BLOCK)
        seconds, tokens = (of / (blocks * passes) for of in (row["timing"]["median"], case["tokens"]))
        said = ", ".join(f"{name} {value}" for name, value in case.items() if name != "tokens")
        found.append(point(said, row["threads"], seconds, tokens, POSITIONS, POSITIONS))
    single = {(r["threads"], r["case"]["preset"]): r["timing"]["median"] for r in rows if r["row"] == "block-pass"}
    for (threads, preset), mean in single.items():
        whole = single[threads, "fast-dllm-v2"]
        if preset == "fast-dllm-v2":
            found.append(point("a pass over the block", threads, whole, 1, BLOCK, SUB_BLOCK))
        else:  # of the seven passes the first reads the block
            narrow = (7 * mean - whole) / 6
            found.append(point("a pass over a sub-block", threads, narrow, 1, SUB_BLOCK, SUB_BLOCK))
    return found


def _weights(config: dict[str, Any]) -> tuple[int, int]:
    one = ModelConfig(**{**config, "eos": tuple(config["eos"])})
    return ternary_weights(one), head_weights(one)


TABLES = {
    "block-cost": by_machine,
    "block-cores": by_bandwidth,
    "block-sub-blocks": with_sub_blocks,
    "block-measured": measured,
}

if __name__ == "__main__":
    print("\n\n".join(make() for make in TABLES.values()))
