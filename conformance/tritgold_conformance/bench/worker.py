"""The process in which an engine is judged and timed: ``python -m tritgold_conformance.bench.worker ENGINE THREADS``.

It limits itself to its processors before anything else is loaded: libraries count them when they start.
"""

import gc
import importlib
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tritgold_conformance.bench.json_rpc import serve
from tritgold_conformance.bench.processes import BINDING, use_processors


def main(spec: str, threads: int, devices: int = 1) -> None:
    """Serve until standard input ends."""
    use_processors(threads, os.environ.get(BINDING, ""))
    bench = Bench(spec, threads, devices)
    offered = ("bandwidth", "tune", "judge", "open", "measure", "product", "small", "profile", "facts")
    serve({name: getattr(bench, name) for name in offered})


class Bench:
    """The requests that the parent may send. Answers are JSON."""

    def __init__(self, spec: str, threads: int, devices: int = 1) -> None:
        self._spec, self._threads, self._devices = spec, threads, devices
        self._engine: Any = None
        self._rows: Any = None
        self._judge: Any = None
        self._parts: Any = None
        self._matrix: Any = None
        self._weights: Any = None
        self._kernels: list[tuple[str, Any]] = []
        self._wrong: dict[tuple[str, int], str] = {}
        self._buffer: Any = None
        self._small: Any = None
        self._small_case: tuple[str, dict[str, Any]] | None = None

    def bandwidth(self, size: int) -> dict[str, float]:
        """Bytes a second, by way of reading."""
        if self._buffer is None:
            from tritgold_conformance.bench.roofline import Buffer

            compiled = None
            if self._spec == "xla":
                self._adapter("xla").own_kv_cache()  # without JAX this says what to install
                compiled = self._adapter("xla").reader
            self._buffer = Buffer(self._threads, compiled, size)
        return self._buffer.bandwidth()

    def tune(self, out: int, in_: int) -> list[dict[str, Any]]:
        """The engine's choices for one matrix, by number of tokens. Engines opened afterwards use them."""
        return self._adapter("xla_kept").tuned(out, in_)

    def judge(self, path: str, kv_cache: str | None, rows: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        """Whether the engine passes on this file, with the options that will be timed. rows: see ``Judge``."""
        from tritgold_conformance.bench.precheck import Judge

        own = self._adapter("xla").own_kv_cache() if self._spec == "xla" else None
        if self._judge is None:
            exact, diffuse = (None, None) if own is None else ("f32", self._adapter("xla").diffuse)
            self._judge = Judge(self._opener(path), Path(path), exact, diffuse)
        passed, text = self._judge.verdict(kv_cache or own, rows)
        return {"passed": passed, "text": text, "kv_cache": kv_cache or own}

    def open(self, path: str, capacity: int, kv_cache: str | None) -> dict[str, Any]:
        """Load the engine; seconds from the path to an engine that can read tokens, and of its first token."""
        from tritgold_conformance.bench.memory import forget_peak
        from tritgold_conformance.bench.precheck import quietly_opened
        from tritgold_conformance.bench.rows import Rows

        self._engine = self._rows = self._parts = None  # free its memory first
        gc.collect()
        forget_peak()  # the judge's, which kept every activation of two models
        begin = time.perf_counter()
        checkpoint = quietly_opened(Path(path))
        engine = self._opener(path)(checkpoint, capacity, kv_cache)
        load, first = time.perf_counter() - begin, None
        if callable(getattr(engine, "step", None)):
            begin = time.perf_counter()
            engine.reset()
            engine.step(0)
            first = time.perf_counter() - begin
        diffuse = self._adapter("xla").diffuse if self._spec == "xla" else None
        self._engine, self._rows = engine, Rows(engine, checkpoint.config.vocab, capacity, diffuse)
        sizes = self._adapter("xla").sizes(engine) if self._spec == "xla" else {}
        return {"load": load, "first": first, "sizes": sizes}

    def measure(self, row: str, case: dict[str, Any]) -> dict[str, Any]:
        """One round of a row."""
        return self._rows.measure(row, case)

    def product(self, out: int, in_: int, tokens: int, only: list[str] | None = None) -> dict[str, Any]:
        """One round of every kernel on a matrix: seconds by kernel; a wrong kernel has a description instead.

        only: names of kernels; the others are left out.
        """
        from tritgold_conformance.bench import matrices

        if (out, in_) != self._matrix:
            self._wrong, self._matrix, self._weights = {}, (out, in_), matrices.matrix(out, in_)
            self._kernels = [("numpy", kernel) for kernel in matrices.numpy_kernels(self._weights)]
            if self._spec == "xla":
                own = self._adapter("xla_products").products(self._weights)
                self._kernels += [("xla", matrices.Kernel(p.name, p.why, p.moved, p.rows or out, p.run)) for p in own]
        codes, answers = matrices.codes_of(tokens, in_), {}
        for by, kernel in self._kernels:
            if only is not None and kernel.name not in only:
                continue
            called = kernel.name, tokens
            if called not in self._wrong:  # its first call compiles, and is judged
                self._wrong[called] = _wrong(lambda kernel=kernel: matrices.wrong(kernel, codes, self._weights))
            text = self._wrong[called]
            seconds = None if text else matrices.seconds_of(kernel, codes, out)
            facts = {"by": by, "why": kernel.why, "bytes_moved": kernel.bytes_moved}
            answers[kernel.name] = {"seconds": seconds, "wrong": text, **facts}
        return answers

    def small(self, row: str, case: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
        """One round of the ways of a row without a model file. config: a model's sizes."""
        from tritgold_conformance.bench.micro.registry import Ways

        if (row, case) != self._small_case:
            adapter = self._adapter("xla_micro") if self._spec == "xla" else None
            self._small, self._small_case = Ways(row, case, config, adapter), (row, dict(case))
        return self._small.round()

    def profile(self, context: int) -> list[dict[str, Any]]:
        """One round of the operations of a decode step, each alone; those of the reference are timed inside a step."""
        from tritgold_conformance.bench.rows import not_offered

        if self._spec == "reference":
            from tritgold_conformance.bench.reference_profile import parts

            return parts(self._engine, context)
        if self._spec != "xla":
            raise not_offered("profile")
        if self._parts is None:
            try:
                self._parts = self._adapter("xla_profile").operations(self._engine, context)
            except ImportError as error:
                raise not_offered(f"profile ({error})") from error
        found = [(part, part.seconds()) for part in self._parts]
        return [{"name": p.name, "calls": p.calls, "bytes_moved": p.moved, "seconds": s} for p, s in found]

    def facts(self) -> dict[str, Any]:
        """Versions, flags and the peak of memory."""
        from tritgold_conformance.bench.memory import peak_memory

        versions: dict[str, str] = getattr(self._engine, "versions", dict)()
        flags = self._adapter("xla_kept").settings() if self._spec == "xla" else {}
        return {"versions": dict(versions), "flags": flags, "peak_memory": peak_memory()}

    def _opener(self, path: str) -> Any:
        """A function (checkpoint, capacity, KV cache) -> the engine, called directly as when it is timed."""
        from tritgold_conformance.engines.load import load_engine

        if self._spec == "xla":
            return partial(self._adapter("xla").open_engine, measure=True, devices=self._devices)
        return lambda checkpoint, capacity, _: (
            load_engine(self._spec, Path(path), checkpoint, capacity, in_process=True).engine
        )

    def _adapter(self, name: str) -> Any:
        """A module of ``engines`` about the XLA engine; JAX is started with the timed number of threads."""
        importlib.import_module("tritgold_conformance.engines.xla").start_with(self._threads)
        return importlib.import_module(f"tritgold_conformance.engines.{name}")


def _wrong(check: Any) -> str:
    try:
        return str(check())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
