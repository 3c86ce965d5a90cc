"""What is asked for: rows, cases, thread counts. Everything that is wrong with it is said before anything is made."""

from dataclasses import dataclass
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import ContextError, EngineError
from tritgold_conformance.bench.room import cores

MATRIX_ROWS = ("gemv", "gemm")
# Rows of a whole model, and what of it they need.
MODEL_ROWS = ("decode", "greedy", "prefill", "first-token", "block-diffusion", "kv", "batch", "threads", "start")
ROWS = (*MATRIX_ROWS, *MODEL_ROWS)
PEERS = ("llama.cpp", "transformers")
KV_CACHES = ("bf16", "f16", "f32", "fp8_e4m3", "fp8_e5m2", "int8")
# What a peer measures for a row of ours. It has no screened head, so ``greedy`` is its plain decoding.
OF_A_PEER = {"decode": "decode", "greedy": "decode", "prefill": "prefill", "first-token": "first-token"}

Case = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """threads: counts, each measured in processes of its own. contexts: positions already in the KV cache. tokens:
    lengths of prompts, and of what a matrix is multiplied with. steps: tokens decoded in one round. runs: rounds.
    tune: measure the engine's ways to multiply first. bandwidth_size: bytes of the buffer that is read.
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
    bandwidth_size: int = 512 << 20

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
        if "threads" in self.rows:  # it is no measurement of its own: these two, and what comes of more threads
            added = tuple(row for row in ("decode", "prefill") if row not in self.rows)
            object.__setattr__(self, "rows", tuple(r for r in self.rows if r != "threads") + added)

    @property
    def matrix_rows(self) -> tuple[str, ...]:
        """Those of one matrix."""
        return tuple(row for row in MATRIX_ROWS if row in self.rows)

    @property
    def model_rows(self) -> tuple[str, ...]:
        """Those of a whole model."""
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
        return [{}]

    def capacity(self) -> int:
        """Positions that the engines need room for; a round that does not fit begins again from the context."""
        ends = [64]
        for row in self.model_rows:
            for case in self.cases(row):
                rounds = min(self.runs, 4)
                ends.append(case["tokens"] if "tokens" in case else case.get("context", 0) + rounds * self.steps + 1)
        return -(-max(ends) // 64) * 64

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
