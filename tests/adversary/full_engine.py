"""The base engine with everything else that the judge can ask of an engine: operations, trace, statistics, files."""

import numpy as np
from base_engine import Engine, F


def statistics_of(array: np.ndarray) -> dict[str, float]:
    wide = np.asarray(array, np.float64)
    return {
        "mean": float(wide.mean()),
        "std": float(wide.std()),
        "rms": float(np.sqrt((wide * wide).mean())),
        "min": float(wide.min()),
        "max": float(wide.max()),
        "zeros": float((wide == 0).mean()),
    }


class Operations(Engine):
    """operation(name, inputs), by the very pieces that `read` uses."""

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        kind = name.rsplit(".", 1)[-1]
        n = int(name.split(".")[1]) if "." in name else 0
        if kind == "embedding":
            return {"x": self.embed(inputs["tokens"].tolist())}
        if kind.endswith("norm"):
            return {"x": self.norm(name, inputs["x"])}
        if kind.endswith("_in"):
            codes, s = self.quantize(name, inputs["x"])
            return {"codes": codes.astype(np.int8), "scale": s}
        if name in self.trits:
            acc = self.accumulate(name, inputs["codes"].astype(F))
            return {"acc": np.asarray(acc).astype(np.int32), "out": self.rescale(name, acc, inputs["scale"])}
        return self._attention(kind, n, inputs) or self._rest(name, kind, n, inputs)

    def _attention(self, kind: str, n: int, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        if kind == "rope":
            at = np.arange(len(inputs["q"]))
            return {p: self.rotate(f"layers.{n}.{p}", inputs[p].reshape(len(at), -1, self.d), at) for p in "qk"}
        if kind == "probs":
            return {"x": self.probabilities(n, inputs["q"], inputs["k"])}
        if kind == "attn_mix":
            return {"x": self.mix(n, inputs["probs"], inputs["v"].reshape(len(inputs["v"]), -1, self.d))}
        return None

    def _rest(self, name: str, kind: str, n: int, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        if kind == "ffn_act":
            return {"x": self.gated(n, inputs["gate"], inputs["up"])}
        if kind.endswith("residual"):
            return {"x": self.add(name, inputs["a"], inputs["b"])}
        return {"x": self.head(inputs["x"])} if kind == "logits" else None


class Traced(Engine):
    """trace and statistics of one prefill from position 0."""

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        self.reset()
        self.notes = {}
        self.prefill(tokens)
        notes, self.notes = self.notes, None
        return notes

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        return {name: statistics_of(array) for name, array in Traced.trace(self, tokens).items()}


class Completing(Engine):
    """complete(tokens): the token written greedily, and the likeliest with their log-probabilities."""

    shown = 20

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        self.reset()
        last = self.prefill(tokens)[-1].astype(np.float64)
        logs = last - last.max()
        logs -= np.log(np.exp(logs).sum())
        best = np.argsort(-logs, kind="stable")[: self.shown]
        return int(best[0]), {int(i): float(logs[i]) for i in best}


class Files(Engine):
    """unpack(format, data, shape) of hf, i2_s, i2_s-64, tq2_0 and tq1_0."""

    def unpack(self, fmt: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        raw = np.frombuffer(bytes(data), np.uint8)
        reader = {"hf": self.read_hf, "tq2_0": self.read_tq2, "tq1_0": self.read_tq1}.get(fmt)
        if reader:
            return reader(raw, int(shape[0]), int(shape[1]))
        if fmt in ("i2_s", "i2_s-64"):
            return self.read_i2s(raw, int(shape[0]), int(shape[1]), 64 if fmt.endswith("64") else 128)
        return None

    def trits_of(self, codes: np.ndarray) -> np.ndarray:
        if (codes > 2).any():
            raise ValueError(f"code 3 at {int(np.argmax(codes > 2))}: not a trit")
        return codes.astype(F) - 1

    def finite(self, scale: np.ndarray) -> np.ndarray:
        if not np.isfinite(scale).all():
            raise ValueError("a scale that is not finite")
        return scale.astype(F)

    def sized(self, raw: np.ndarray, size: int) -> np.ndarray:
        if len(raw) != size:
            raise ValueError(f"{len(raw)} bytes, expected {size}")
        return raw

    def read_hf(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        packed = self.sized(raw, -(-rows // 4) * columns).reshape(-1, columns)
        codes = np.concatenate([(packed >> shift) & 3 for shift in (0, 2, 4, 6)])
        return self.trits_of(codes)[:rows]

    def read_i2s(self, raw: np.ndarray, rows: int, columns: int, block: int) -> np.ndarray:
        size = rows * columns // 4
        if rows * columns % block:
            raise ValueError(f"{rows * columns} weights, expected a multiple of {block}")
        self.sized(raw, size + 32)
        packed = raw[:size].reshape(-1, 1, block // 4)
        codes = (packed >> np.array([6, 4, 2, 0], np.uint8)[:, None]) & 3
        scale = self.finite(raw[size : size + 4].copy().view("<f4"))[0]
        return self.trits_of(codes.reshape(rows, columns)) * scale

    def read_tq2(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        blocks = self.blocks(raw, rows, columns, 66)
        packed = blocks[:, :64].reshape(-1, 2, 1, 32)
        codes = (packed >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
        scale = self.finite(blocks[:, 64:].copy().view("<f2").astype(F))
        return (self.trits_of(codes.reshape(-1, 256)) * scale).reshape(rows, columns)

    def read_tq1(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        blocks = self.blocks(raw, rows, columns, 54)
        parts = [self.digits(blocks[:, a:b], n) for a, b, n in ((0, 32, 5), (32, 48, 5), (48, 52, 4))]
        scale = self.finite(blocks[:, 52:].copy().view("<f2").astype(F))
        return (self.trits_of(np.concatenate(parts, 1)) * scale).reshape(rows, columns)

    def digits(self, packed: np.ndarray, count: int) -> np.ndarray:
        wide = packed.astype(np.int64)
        return np.concatenate([(wide * 3**n % 256) * 3 // 256 for n in range(count)], 1)

    def blocks(self, raw: np.ndarray, rows: int, columns: int, size: int) -> np.ndarray:
        if columns % 256:
            raise ValueError(f"{columns} columns, expected a multiple of 256")
        return self.sized(raw, rows * columns // 256 * size).reshape(-1, size)


class FullEngine(Operations, Traced, Completing, Files):
    """Everything but loops and text."""
