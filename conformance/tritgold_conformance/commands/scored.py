"""The work of ``tritgold eval``: opens model and engine, asks the questions, shows how many answers are right."""

import time
from typing import Any

import click
from rich.table import Table

from tritgold.checkpoint import Checkpoint
from tritgold.skills import TASKS
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.leaving import interrupted_by_signals
from tritgold_conformance.contract.engine import DEFAULT_TIMEOUT
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.questions import exam
from tritgold_conformance.scoring import diffused, greedy
from tritgold_conformance.scoring.summary import summary

MODEL = "skills-ar"


def score_model(
    model: str | None,
    engine: str,
    tasks: tuple[str, ...],
    levels: tuple[str, ...],
    questions: int,
    seed: int,
    decode: str | None,
    threshold: float,
    timeout: int | None,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Run the command."""
    if decode is not None and engine not in diffused.ENGINES:
        raise click.UsageError(f"--decode needs --engine {' or '.join(diffused.ENGINES)}, not {engine}")
    name = MODEL if model is None else model
    with printing.errors(as_json), interrupted_by_signals(), model_input.model_path(name) as path:
        checkpoint = reading.open(path)
        tokenizer = model_input.require_tokenizer(checkpoint, None)
        asked = exam.items(tokenizer, tasks or tuple(TASKS), levels or ("middle",), questions, seed)
        _fit(checkpoint, asked)
        started = time.perf_counter()
        with printing.progress() as say:

            def shown(count: int) -> None:
                say(f"{count} of {len(asked)} questions")

            shown(0)
            versions = dict[str, str]()
            if decode is None:
                longest = max(len(item.prompt) + len(item.answer) for item in asked)
                opened = load_engine(engine, path, checkpoint, longest, timeout or DEFAULT_TIMEOUT, say)
                answers = greedy.score(opened, asked, checkpoint.config, tokenizer, shown)
                versions = opened.versions()
            else:
                answers = diffused.score(engine, checkpoint, asked, tokenizer, decode, threshold, shown)
        report = {
            "schema": "tritgold.eval/1",
            "model": name,
            "model_hash": checkpoint.model_hash(),
            "engine": engine,
            "versions": versions,
            "decode": decode or "ar",
            "threshold": None if decode in (None, "greedy") else threshold,
            "seed": seed,
            "seconds": round(time.perf_counter() - started, 3),
            "rows": summary(asked, answers),
            "wrong": [
                {"task": item.task, "level": item.level, "asked": item.question.prompt, "right": item.question.right}
                | ({} if answer.text is None else {"written": answer.text})
                for item, answer in zip(asked, answers, strict=True)
                if not answer.right
            ],
        }
    if as_json:
        printing.print_json(report)
    else:
        _print(report)


def _fit(checkpoint: Checkpoint, asked: list[exam.Item]) -> None:
    """Raises click.UsageError if a question with its answer is longer than the model's context."""
    longest, context = (
        max(len(item.prompt) + len(item.answer) for item in asked) + exam.SPARE,
        checkpoint.config.context,
    )
    if longest > context:
        raise click.UsageError(
            f"questions of {longest} tokens do not fit into the model's {context} positions; leave out --level hard"
        )


def _print(report: dict[str, Any]) -> None:
    of_blocks = any("passes_per_token" in row for row in report["rows"])
    columns = ("task", "level", "right", "accuracy", "95 % interval", *["passes a token"] * of_blocks)
    table = Table(*columns, title=_title(report))
    for row in report["rows"]:
        low, high = row["interval"]
        figures = (f"{row['right']} of {row['of']}", f"{row['accuracy']:.1%}", f"{low:.1%} to {high:.1%}")
        passes = [f"{row['passes_per_token']:.2f}" if "passes_per_token" in row else ""] * of_blocks
        table.add_row(row["task"], row["level"], *figures, *passes)
    printing.console().print(table)


def _title(report: dict[str, Any]) -> str:
    how = "one token after the other"
    if report["decode"] != "ar":
        how = report["decode"] + ("" if report["threshold"] is None else f" at {report['threshold']:g}")
    return f"{report['model']}, {report['engine']}, {how}"
