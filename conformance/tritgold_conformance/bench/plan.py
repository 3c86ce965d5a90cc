"""What is asked for: rows, cases, thread counts. Errors in it are found before anything is written."""

from dataclasses import dataclass
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import ContextError, EngineError
from tritgold_conformance.bench.memory import cores
from tritgold_conformance.bench.micro.cases import MICRO_ROWS, OF_MATRICES, SIZED

MATRIX_ROWS = ("gemv", "gemm")
# Rows of a whole model, and what of it they need.
MODEL_ROWS = ("decode", "greedy", "prefill", "first-token", "block-diffusion", "kv", "batch", "gc", "threads", "start")
ROWS = (*MATRIX_ROWS, *MODEL_ROWS, *MICRO_ROWS)
KV_CACHES = ("bf16", "f16", "f32", "fp8_e4m3", "fp8_e5m2", "int8")
# What a peer measures for a row of ours. It has no screened head, so ``greedy`` is its plain decoding.
OF_A_PEER = {"decode": "decode", "greedy": "decode", "prefill": "prefill", "first-token": "first-token"}

# Of block diffusion: tokens of a text, and the presets that have a threshold.
BLOCK_TOKENS = 64
PRESETS = ("fast-dllm-v2", "iterative", "adaptive")

# Python's garbage collector while a model decodes: as it is, off, and run whole after each token.
GC = ("on", "off", "each token")

Case = dict[str, Any]
Groups = dict[str | None, list[tuple[str, Case]]]  # rows and cases by KV cache


@dataclass(frozen=True)
class Plan:
    """threads: counts, each measured in processes of its own. contexts: positions already in the KV cache. tokens:
    lengths of prompts, and of what a matrix is multiplied with. steps: tokens decoded in one round. runs: rounds.
    peers: as ``peer_names`` reads them. tune: measure the engine's ways to multiply first.
    kv_cache: of all rows but ``kv``; None: the engine's own. sequences: of the row ``batch``. blocks: whether the model
    is one of block diffusion. bandwidth_size: bytes of the buffer that is read. devices: of the engine xla.
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
    blocks: bool = False
    bandwidth_size: int = 512 << 20
    devices: int = 1

    def __post_init__(self) -> None:
        there = cores()
        most = len(there) or max(self.threads)
        if max(self.threads) > most:
            raise EngineError(
                "more threads than processors that this process may use",
                kind="threads",
                got=max(self.threads),
                expected=f"at most {most}",
                hint="two threads on one processor measure the scheduler",
            )
        if "threads" in self.rows:  # not a measurement of its own: these two, and what comes of more threads
            added = tuple(row for row in ("decode", "prefill") if row not in self.rows)
            object.__setattr__(self, "rows", tuple(r for r in self.rows if r != "threads") + added)

    @property
    def matrix_rows(self) -> tuple[str, ...]:
        """Asked-for rows that multiply one matrix."""
        return tuple(row for row in MATRIX_ROWS if row in self.rows)

    @property
    def micro_rows(self) -> tuple[str, ...]:
        """Asked-for rows that need no model file."""
        return tuple(row for row in MICRO_ROWS if row in self.rows)

    @property
    def needs_model(self) -> bool:
        """Whether a model's file is opened at all."""
        return bool(self.model_rows or self.profile)

    @property
    def model_rows(self) -> tuple[str, ...]:
        """Asked-for rows that run a whole model."""
        return tuple(row for row in MODEL_ROWS if row in self.rows)

    def cases(self, row: str) -> list[Case]:
        """What a row measures, in order."""
        match row:
            case "gemv":
                return [{"tokens": 1}]
            case "gemm":
                return [{"tokens": n} for n in self.tokens or (8, 32, 128)]
            case "prefill" | "first-token":
                return [{"tokens": n} for n in self.tokens or (128,)]
            case "decode" | "greedy":
                return [{"context": c, "steps": self.steps} for c in self.contexts or (64,)]
            case "kv":
                contexts = self.contexts or (512, 2048)
                return [{"kv": kv, "context": c, "steps": self.steps} for kv in self.kv_caches for c in contexts]
            case "batch":
                context = (self.contexts or (16,))[0]
                return [{"sequences": n, "context": context, "steps": self.steps} for n in self.sequences]
            case "gc":
                context = (self.contexts or (64,))[0]
                return [{"gc": way, "context": context, "steps": self.steps} for way in GC]
            case "block-diffusion" if self.blocks:
                # iterative at 1 is a token a pass: what the others are to be compared with
                drawn = [(preset, t) for preset in PRESETS for t in ("0.9", "0.5", "0.3")]
                presets = [("iterative", "1"), *drawn, ("greedy", "0")]
                return [{"preset": preset, "threshold": t, "tokens": BLOCK_TOKENS} for preset, t in presets]
            case "block-diffusion":
                return [{"block": 32, "passes": n, "tokens": BLOCK_TOKENS} for n in (4, 8, 16)]
        return {**SIZED, **OF_MATRICES}[row](self) if row in MICRO_ROWS else [{}]

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
            else case.get("context", 0) + decoded
            for row in self.model_rows for case in self.cases(row)
        ]  # fmt: skip
        return -(-max(64, *ends) // 64) * 64

    def require_context(self, config: ModelConfig) -> None:
        """Raises ContextError where a case needs more positions than the model has."""
        if self.capacity() > config.context:
            raise ContextError(
                "more positions than the model has",
                kind="context-length",
                got=f"{self.capacity()} needed",
                expected=f"at most {config.context}",
                hint="give smaller --context, --tokens or --steps",
            )
