"""What a step of a model costs over devices: bytes, memory, collectives, seconds. Formulas, and shapes for them."""

from dataclasses import dataclass, replace
from typing import Any

from tritgold.config import ModelConfig
from tritgold.weights import LINEARS
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.sharding.partition import Plan, cut_of
from tritgold_xla.ternary_matmul.planes import words


def _shape(vocab: int, hidden: int, inter: int, layers: int, heads: int, kv_heads: int) -> ModelConfig:
    return ModelConfig(
        vocab=vocab, hidden=hidden, inter=inter, layers=layers, heads=heads, kv_heads=kv_heads,
        head_dim=hidden // heads, context=4096, norm_eps=1e-5, rope_theta=5e5, activation="relu2", sub_norms=True,
        tied_head=False, scale_rule="multiply",
    )  # fmt: skip


# Widths of Llama 2 7B, LLaMA 30B and Llama 3 70B, and a wider one of 100 billion weights.
SHAPES = {
    "7B": _shape(32_000, 4096, 11_008, 32, 32, 32),
    "30B": _shape(32_000, 6656, 17_920, 60, 52, 52),
    "70B": _shape(128_256, 8192, 28_672, 80, 64, 8),
    "100B": _shape(128_256, 9216, 32_768, 90, 72, 8),
}


@dataclass(frozen=True)
class Machine:
    """devices, and of each: bandwidth, bytes a second of memory; of the net between them: latency, seconds of one
    collective of no bytes; network, bytes a second of one device.
    """

    devices: int
    bandwidth: float
    latency: float
    network: float


@dataclass(frozen=True)
class Step:
    """A token: of one device, bytes of weights it holds and bytes it reads; collectives, bytes it sends; seconds."""

    devices: int
    held: int
    bytes_read: int
    collectives: int
    bytes_sent: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For a report."""
        return {**vars(self), "tokens_per_second": 1 / self.seconds}


def step(config: ModelConfig, machine: Machine, context: int = 1024, scheme: str = "bf16") -> Step:
    """One token after ``context`` positions, a head of bfloat16."""
    n, plan = machine.devices, Plan.of(config, machine.devices)
    shapes = [plan.linear_shape(name) for name in LINEARS]
    packed = config.layers * sum(8 * words(in_) * out for out, in_ in shapes)
    head = 2 * plan.rows * config.hidden
    cache = 2 * config.layers * plan.local.kv_heads * kv_scheme(scheme).row_bytes(config.head_dim)
    held = packed + head * (1 if config.tied_head else 2) + cache * config.context
    read = packed + head + cache * context
    sums = sum(cut_of(name).along == "in" for name in LINEARS)
    count = 0 if n == 1 else config.layers * 2 * sums + 2
    # A sum sends twice what a gathering does: a ring reduces, then distributes.
    a_layer = 2 * 4 * config.hidden * sums + 4 * ((config.q_width + config.inter) if config.sub_norms else 2)
    sent = (n - 1) * (config.layers * a_layer + 2 * 4 * config.hidden + 4 * config.vocab) // n
    seconds = read / machine.bandwidth + count * machine.latency + sent / machine.network
    return Step(n, held, read, count, sent, seconds)


# A socket with eight channels of memory in use by one process, and a network of 50 Gbit/s between sockets.
ASSUMED = Machine(1, 50e9, 30e-6, 6.25e9)
COUNTS = (1, 2, 4, 8, 16)


def table() -> str:
    """The table of docs/sharding.md, which a test holds to these formulas."""
    lines = [
        "| model | devices | GB a device | GB read a token | collectives | MB sent | ms a token | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, config in SHAPES.items():
        for count in COUNTS:
            s = step(config, replace(ASSUMED, devices=count))
            figures = f"{s.held / 1e9:.2f} | {s.bytes_read / 1e9:.2f} | {s.collectives} | {s.bytes_sent / 1e6:.1f}"
            lines.append(f"| {name} | {count} | {figures} | {s.seconds * 1e3:.0f} | {1 / s.seconds:.1f} |")
    return "\n".join(lines)
