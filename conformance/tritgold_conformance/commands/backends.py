"""What each backend of ``run`` and ``serve`` supports; everything else is refused. A test tries every entry."""

import click

from tritgold.options import DECODE, KV_SCHEMES
from tritgold_conformance.commands.decoding import Decoding
from tritgold_conformance.commands.decoding_options import DEFECTS, RULES, SERVER_DEFECTS

# Option -> the values that the backend supports.
SUPPORTED: dict[str, dict[str, tuple[str, ...]]] = {
    "reference": {
        "--decode": DECODE,
        "--kv-cache": KV_SCHEMES,
        "--sparsity": RULES,
        "--defect": DEFECTS + SERVER_DEFECTS,
        "--temperature with --decode": DECODE,
        "options of --kv-cache": KV_SCHEMES,
        "batch options": ("--max-sequences", "--chunk", "--radix-cache", "--no-radix-cache"),
        "several devices": (),
    },
    "xla": {
        "--decode": ("ar", "fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block"),
        "--kv-cache": ("f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"),
        "--sparsity": (),
        "--defect": (),
        "--temperature with --decode": ("ar",),
        "options of --kv-cache": (),
        "batch options": ("--max-sequences", "--no-radix-cache"),
        "several devices": ("--devices",),
    },
}


def refuse(backend: str, way: str, decoding: Decoding) -> None:
    """Raises click.UsageError for unsupported values, naming the supported ones. way: one of DECODE."""
    scheme, options = decoding.kv_cache or ("f32", {})
    radix = {True: ["--radix-cache"], False: ["--no-radix-cache"], None: []}[decoding.radix_cache]
    sizes = {"--max-sequences": decoding.max_sequences, "--chunk": decoding.chunk}
    asked = {
        "--decode": [way],
        "--kv-cache": [scheme] if scheme in KV_SCHEMES else [],  # an unknown name is refused by the registry of schemes
        "--sparsity": [name for name, _ in decoding.sparsity if name in RULES],
        "--defect": list(decoding.defect),
        "--temperature with --decode": [way] if decoding.temperature else [],
        "options of --kv-cache": [scheme] if options else [],
        "several devices": ["--devices"] if decoding.devices > 1 else [],
        "batch options": [*(name for name, size in sizes.items() if size is not None), *radix],
    }
    missing = []
    for option, values in asked.items():
        has = SUPPORTED[backend][option]
        if wrong := [value for value in values if value not in has]:
            missing.append(f"{option} {', '.join(wrong)} (it has: {', '.join(has) or 'none'})")
    if missing:
        raise click.UsageError(f"--backend {backend} does not have {'; '.join(missing)}; or leave --backend out")
