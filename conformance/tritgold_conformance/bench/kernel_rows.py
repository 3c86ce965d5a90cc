"""Rows without a model file: what --tune finds, every kernel of a matrix, micro rows, bindings of threads."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from tritgold.config import ModelConfig
from tritgold.weights import LINEARS
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.plan import BINDINGS, OF_MATRICES, Case, Plan
from tritgold_conformance.bench.processes import engine_process
from tritgold_conformance.bench.results import Result, Tuned
from tritgold_conformance.bench.roofline import Roof
from tritgold_conformance.bench.throughput import products_of, shown

Say = Callable[[str], None]
Sizes = list[tuple[int, int]]


def sizes(config: ModelConfig) -> Sizes:
    """[out, in] of every kind of matrix in a model."""
    return list(dict.fromkeys(config.linear_shape(name) for name in LINEARS))


def tuned(tuning: Worker, threads: int, matrices: Sizes, say: Say) -> list[Tuned]:
    """The engine's fastest way for each matrix; processes that start later use it."""
    found = []
    for out, in_ in matrices:
        say(f"tuning {out}x{in_}")
        choices = tuning.ask("tune", out=out, in_=in_)
        found += [Tuned(threads=threads, out=out, in_=in_, **choice) for choice in choices]
    return found


def products(multiplying: Worker, plan: Plan, roof: Roof, matrices: Sizes, say: Say) -> Iterator[Result]:
    """Every kernel on each matrix, by the rows of the plan."""
    for out, in_ in matrices:
        for row in plan.matrix_rows:
            for case in plan.cases(row):
                case = {"matrix": f"{out}x{in_}", **case}
                say(f"{row} {shown(case)}")
                ask: Callable[[], Any] = partial(multiplying.ask, "product", out=out, in_=in_, tokens=case["tokens"])
                yield from products_of(ask, roof, plan.runs, row, case, roof.found.threads, out * in_)


def small(
    working: Worker, plan: Plan, roof: Roof, config: ModelConfig | None, matrices: Sizes, say: Say
) -> Iterator[Result]:
    """Every way of every micro row. Those of a model's sizes are left out if ``config`` is None."""
    for row in plan.micro_rows:
        if row == "binding":
            for out, in_ in matrices[:1]:
                say(f"{row} {out}x{in_}")
                yield from _bound(plan, roof, {"matrix": f"{out}x{in_}"}, out, in_)
            continue
        cases: list[Case] = (
            [{"matrix": f"{out}x{in_}"} for out, in_ in matrices] if row in OF_MATRICES else plan.cases(row)
        )
        for case in cases if config is not None or row in OF_MATRICES else ():
            say(f"{row} {shown(case)}")
            sent = None if config is None else config.as_dict()
            ask: Callable[[], Any] = partial(working.ask, "small", row=row, case=case, config=sent)
            yield from products_of(ask, roof, plan.runs, row, case, roof.found.threads, None)


def _bound(plan: Plan, roof: Roof, case: Case, out: int, in_: int) -> list[Result]:
    """One product, in turn in processes whose threads may run on different processors: BINDINGS."""
    fastest = ["select"] if plan.engine == "xla" else ["cached f32"]
    with ExitStack() as stack:
        bound = {
            name: stack.enter_context(engine_process(plan.engine, roof.found.threads, binding=name))
            for name in BINDINGS
        }

        def ask() -> dict[str, Any]:
            found = {}
            for name, process in bound.items():
                answers = process.ask("product", out=out, in_=in_, tokens=1, only=fastest)
                (found[name],) = answers.values()
            return found

        return products_of(ask, roof, plan.runs, "binding", {**case, "tokens": 1}, roof.found.threads, out * in_)
