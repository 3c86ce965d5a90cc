"""What a benchmark measures: rows, cases, thread counts. Errors in it are found before anything is written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import ContextError, EngineError
from tritgold_conformance.bench.memory import cores

KV_CACHES = ("bf16", "f16", "f32", "fp8_e4m3", "fp8_e5m2", "int8")
# What a peer measures for a row of the engine. It has no screened head, so ``greedy`` is its plain decoding.
OF_A_PEER = {"decode": "decode", "greedy": "decode", "prefill": "prefill", "first-token": "first-token"}
# Where the threads of a process may run: the first processors, the last ones, or all.
BINDINGS = ("first", "last", "free")
GC = ("on", "off", "each token")  # Python's garbage collector while a model decodes
SERVED = 4  # texts in one pass of a server
BLOCK_TOKENS = 64  # tokens of a text of block diffusion
BLOCK_PRESETS = ("fast-dllm-v2", "fast-dllm-v2-dual", "iterative", "adaptive")  # those with a threshold

Case = dict[str, Any]
Groups = dict[str | None, list[tuple[str, Case]]]  # rows and cases by KV cache
Cases = Callable[["Plan"], list[Case]]  # by row: what it measures, in order


def _decoding(plan: "Plan", context: int = 64) -> list[Case]:
    return [{"context": c, "steps": plan.steps} for c in plan.contexts or (context,)]


def _prompts(plan: "Plan") -> list[Case]:
    return [{"tokens": n} for n in plan.tokens or (128,)]


def _blocks(plan: "Plan") -> list[Case]:
    if not plan.blocks:
        return [{"block": 32, "passes": n, "tokens": BLOCK_TOKENS} for n in (4, 8, 16)]
    # iterative at 1 is one token per pass: what the others are compared with
    drawn = [(preset, t) for preset in BLOCK_PRESETS for t in ("0.9", "0.5", "0.3")]
    presets = [("iterative", "1"), *drawn, ("greedy", "0")]
    return [{"preset": preset, "threshold": t, "tokens": BLOCK_TOKENS} for preset, t in presets]


def _by_cache(plan: "Plan", name: str, values: tuple[int, ...], **more: int) -> list[Case]:
    return [{"kv": kv, name: value, **more} for kv in plan.kv_caches for value in values]


# Of one matrix.
_OF_ONE_MATRIX: dict[str, Cases] = {
    "gemv": lambda plan: [{"tokens": 1}],
    "gemm": lambda plan: [{"tokens": n} for n in plan.tokens or (8, 32, 128)],
}
# Of a whole model in a file.
_OF_A_MODEL: dict[str, Cases] = {
    "decode": _decoding,
    "greedy": _decoding,
    "prefill": _prompts,
    "first-token": _prompts,
    "block-diffusion": _blocks,
    "block-pass": lambda plan: [
        {"preset": preset, "threshold": "1", "block": 32} for preset in ("fast-dllm-v2", "fast-dllm-v2-dual")
    ],
    "kv": lambda plan: _by_cache(plan, "context", plan.contexts or (512, 2048), steps=plan.steps),
    "batch": lambda plan: [{"sequences": n, **_decoding(plan, 16)[0]} for n in plan.sequences],
    "gc": lambda plan: [{"gc": way, **_decoding(plan)[0]} for way in GC],
    "threads": lambda plan: [{}],  # see Plan
    "start": lambda plan: [{}],
    "serve": lambda plan: [
        {"clients": n, "prompt": (plan.tokens or (64,))[0], "steps": plan.steps} for n in plan.clients
    ],
}
# Of one matrix, and of every matrix of a model.
OF_MATRICES: dict[str, Cases] = {"unpack": lambda plan: [{}], "binding": lambda plan: [{}]}
# Of a model's sizes, with or without its file.
SIZED: dict[str, Cases] = {
    "fused": lambda plan: [{"group": g, "tokens": n} for g in ("qkv", "gate-up") for n in plan.tokens or (1, 32)],
    "kv-update": lambda plan: _by_cache(plan, "tokens", plan.tokens or (1,)),
    "kv-gather": lambda plan: _by_cache(plan, "tokens", plan.tokens or (50, 100)),
    "attention": lambda plan: _by_cache(plan, "context", plan.contexts or (512, 2048)),
    "sparse-attention": lambda plan: [
        {"context": (plan.contexts or (512,))[0], "queries": n} for n in plan.tokens or (1, 32, 128)
    ],
    "sparse-linear": lambda plan: [{"keep": "0.5", "tokens": n} for n in plan.tokens or (1, 32, 128)],
    "sample": lambda plan: [{}],
    "schedule": lambda plan: [
        {"sequences": n} for n in [n for n in plan.sequences if n in (1, 4, 16)] or plan.sequences
    ],
    "tokenise": lambda plan: [{"words": n} for n in (64, 1024)],
}
MATRIX_ROWS, MODEL_ROWS, MICRO_ROWS = tuple(_OF_ONE_MATRIX), tuple(_OF_A_MODEL), (*OF_MATRICES, *SIZED)
ROWS = (*MATRIX_ROWS, *MODEL_ROWS, *MICRO_ROWS)
_CASES = {**_OF_ONE_MATRIX, **_OF_A_MODEL, **OF_MATRICES, **SIZED}


@dataclass(frozen=True)
class Plan:
    """threads: thread counts; each is measured in its own processes. contexts: positions already in the KV cache.
    tokens: lengths of prompts, and numbers of tokens that a matrix is multiplied with. steps: tokens decoded in one
    round. runs: rounds. peers: as ``peer_names`` reads them. tune: measure the engine's ways to multiply first.
    kv_cache: of all rows but ``kv``; None: the engine's own. sequences: of the row ``batch``; clients: of ``serve``.
    blocks: whether the model was trained for block diffusion. bandwidth_size: bytes of the buffer that is read.
    devices: of the engine xla.
    """

    rows: tuple[str, ...]
    threads: tuple[int, ...]
    contexts: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    steps: int = 16
    runs: int = 5
    engine: str = "xla"
    peers: tuple[str, ...] = ()
    profile: bool = False
    kv_caches: tuple[str, ...] = KV_CACHES
    tune: bool = False
    kv_cache: str | None = None
    sequences: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    clients: tuple[int, ...] = (1, 4, 16)
    blocks: bool = False
    bandwidth_size: int = 512 << 20
    devices: int = 1

    def __post_init__(self) -> None:
        most = len(cores()) or max(self.threads)
        if max(self.threads) > most:
            raise EngineError(
                "more threads than processors that this process may use",
                kind="threads",
                got=max(self.threads),
                expected=f"at most {most}",
                hint="two threads on one processor measure the scheduler",
            )
        if "threads" in self.rows:  # not a measurement itself: these two, whose scaling is then shown
            added = tuple(row for row in ("decode", "prefill") if row not in self.rows)
            object.__setattr__(self, "rows", tuple(r for r in self.rows if r != "threads") + added)

    @property
    def matrix_rows(self) -> tuple[str, ...]:
        """Requested rows that multiply one matrix."""
        return tuple(row for row in MATRIX_ROWS if row in self.rows)

    @property
    def micro_rows(self) -> tuple[str, ...]:
        """Requested rows that need no model file."""
        return tuple(row for row in MICRO_ROWS if row in self.rows)

    @property
    def needs_model(self) -> bool:
        """Whether a model's file is opened."""
        return bool(self.model_rows or self.profile)

    @property
    def model_rows(self) -> tuple[str, ...]:
        """Requested rows that run a whole model."""
        return tuple(row for row in MODEL_ROWS if row in self.rows)

    def cases(self, row: str) -> list[Case]:
        """What a row measures, in order."""
        return _CASES[row](self)

    def by_kv_cache(self) -> Groups:
        """Rows and cases by KV cache: the plan's first, or None, the engine's own; then those of the row ``kv``."""
        groups: Groups = {}
        if self.profile or set(self.model_rows) - {"kv"}:
            groups[self.kv_cache] = []
        for row in self.model_rows:
            for case in self.cases(row):
                groups.setdefault(case.get("kv", self.kv_cache), []).append((row, case))
        return groups

    def capacity(self) -> int:
        """Positions that the engines need room for; a round that does not fit begins again from the context."""
        decoded = min(self.runs, 4) * self.steps + 1
        ends = [
            case["tokens"] * (2 if row == "block-diffusion" else 1) if "tokens" in case
            else case["prompt"] + case["steps"] + 1 if row == "serve"
            else case.get("context", 0) + decoded
            for row in self.model_rows for case in self.cases(row)
        ]  # fmt: skip
        return -(-max(64, *ends) // 64) * 64

    def require_context(self, config: ModelConfig) -> None:
        """Raises ContextError if a case needs more positions than the model has."""
        if self.capacity() > config.context:
            raise ContextError(
                "more positions than the model has",
                kind="context-length",
                got=f"{self.capacity()} needed",
                expected=f"at most {config.context}",
                hint="give smaller --context, --tokens or --steps",
            )
