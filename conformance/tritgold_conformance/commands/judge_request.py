"""The options of ask, check and diagnose: an engine, a model and an input; and the golden run that they give."""

import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from tritgold.checkpoint import Checkpoint
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.options import collected, devices_option
from tritgold_conformance.contract.engine import DEFAULT_TIMEOUT, ENGINE_SPECS, MODES
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.ask import ask, ask_as_declared
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
from tritgold_conformance.policies import FLOAT32, Policy, named_policy
from tritgold_conformance.questions.accuracy import exam_of
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.questions.ladder import Ladder, ladder_of, plan


@dataclass(frozen=True)
class JudgeRequest:
    """The options of ``judge_options``, and ``reading``, the options of ``model_options``, which ``guarded`` adds.

    timeout: seconds. mode, policy: None for the engine's own. depth: None for ``default``. ids: instead of --tokens.
    devices: of the engine xla.
    """

    engine: str
    in_process: bool = False
    timeout: int | None = None
    mode: str | None = None
    policy: str | None = None
    model: str | None = None
    tokens: int = 40
    seed: int = 1
    depth: str | None = None
    ids: list[int] | None = None
    devices: int = 1
    reading: model_input.Reading = field(default_factory=model_input.Reading)

    @property
    def model_name(self) -> str:
        """The name of the model in reports."""
        return model_input.model_name(self.model)

    def options(self) -> tuple[str, ...]:
        """Options that the commands in a report repeat, besides engine, model and ids."""
        devices = self.devices if self.devices > 1 else None
        named = {"--timeout": self.timeout, "--mode": self.mode, "--policy": self.policy, "--devices": devices}
        said = [word for option, value in named.items() if value is not None for word in (option, str(value))]
        depth = [f"--{self.depth}"] if self.depth else []
        depth += ["--seed", str(self.seed)] if self.seed != 1 else []  # of the texts besides --ids
        return (*self.reading.words(), *said, *depth, *["--in-process"] * self.in_process)

    def command(self, *more: str) -> str:
        """The command that repeats the judgement. more: further options."""
        where = () if self.model is None else ("--model", self.model)
        text = ["--tokens", str(self.tokens), *(["--seed", "1"] if self.seed == 1 else [])]
        if self.ids is not None:
            text = ["--ids", ",".join(map(str, self.ids))]
        return shlex.join(["tritgold", "check", "--engine", self.engine, *where, *self.options(), *more, *text])

    @contextmanager
    def opened(self) -> Iterator["Opened"]:
        """Engine and checkpoint, opened. Raises click.UsageError if --in-process or --devices is for other engines."""
        if self.devices > 1 and self.engine != "xla":
            raise click.UsageError(f"--devices is an option of the engine xla, not of {self.engine}")
        with model_input.model_path(self.model) as path, printing.progress() as say:
            checkpoint = self.reading.open(path)
            ids = self.ids
            if ids is None:
                ids = judging_tokens(self.tokens, checkpoint.config.vocab, self.seed)
            ladder = ladder_of(checkpoint.config, ids, self.depth or "default", self.seed)
            if ladder is not None and ladder.depth == "thorough":
                exam = exam_of(checkpoint, ladder.depth, ladder.seed)
                more = "" if isinstance(exam, str) else f"; {len(exam.items)} questions (accuracy)"
                printing.say_error(plan(ladder, checkpoint.config) + more)
            longest = len(ids) if ladder is None else ladder.longest
            limit = self.timeout or DEFAULT_TIMEOUT
            asked = None if self.policy is None else named_policy(self.policy)
            engine = load_engine(
                self.engine, path, checkpoint, longest, limit, say, self.in_process, asked, self.devices
            )
            if self.in_process and not engine.in_process:
                raise click.UsageError(f"--in-process needs an engine module:Class; {self.engine} is not one")
            if (only := engine.judged_text) is not None:
                ids, ladder = only, None
            policy = named_policy(engine.policy) if asked is None else asked
            yield Opened(engine, checkpoint, ids, ladder, self.mode or engine.mode, say, policy, asked is None)


@dataclass(frozen=True)
class Opened:
    """The opened parts of a request.

    ladder: texts besides ``tokens``. mode: the name of the arithmetic to judge by. say: receives the current step.
    policy: the precision to judge by. as_declared: none was requested, so that the one which the engine declares holds.
    """

    engine: EngineUnderTest
    checkpoint: Checkpoint
    tokens: list[int]
    ladder: Ladder | None
    mode: str
    say: Callable[[str], None]
    policy: Policy = FLOAT32
    as_declared: bool = False

    def golden_run(self) -> GoldenRun:
        """The golden answer to the same tokens."""
        self.say("golden model")
        return GoldenRun.of(self.checkpoint, self.tokens, named_arithmetic(self.mode), self.policy)

    def asked(self, ladder: Ladder | None = None) -> tuple[GoldenRun, Evidence]:
        """The engine's answers, and the golden run to judge them by."""
        golden = self.golden_run()
        if self.as_declared:
            return ask_as_declared(self.engine, golden, self.say, ladder)
        return golden, ask(self.engine, golden, self.say, ladder)


class Seed(click.ParamType[int]):
    """A seed of the judged texts."""

    name = "seed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A whole number; for ``nonce`` a random one, which no engine can know in advance."""
        if value == "nonce":
            return secrets.randbelow(2**31)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor nonce", param, ctx)


judge_options = collected(
    "request",
    JudgeRequest,
    (
        click.option("--engine", default="xla", show_default=True, metavar="ENGINE", help=f"{ENGINE_SPECS}."),
        click.option(
            "--in-process", is_flag=True,
            help="For a debugger: run a module:Class in the judge's own process, where it can change the judge.",
        ),
        click.option(
            "--timeout", type=click.IntRange(1, 604_800),
            help=f"Seconds for one run, answer or call; {DEFAULT_TIMEOUT:g} by default.",
        ),
        click.option(
            "--mode", type=click.Choice(MODES), help="The arithmetic to judge by; by default the engine's own."
        ),
        click.option(
            "--policy", metavar="POLICY",
            help="The precision to judge by, kv-f16+logits-bf16 for example; by default the engine's own, or float32.",
        ),
        click.option("--model", help="A checkpoint folder, GGUF file or embedded model (kjv-ar by default)."),
        click.option("--tokens", default=40, show_default=True, help="Length of the input in tokens."),
        click.option(
            "--seed", type=Seed(), default=1, show_default=True, help="Seed of the texts; nonce: a random one."
        ),
        click.option("--quick", "depth", flag_value="quick", help="Shorter texts; ten seconds for a small model."),
        click.option(
            "--thorough", "depth", flag_value="thorough",
            help="Texts of the whole context, every token id, as far as ten minutes go.",
        ),
        click.option("--one-text", "depth", flag_value="one-text", help="Only the text of --tokens or --ids."),
        click.option("--ids", type=model_input.Ids(), help="The input as token ids, instead of --tokens and --seed."),
        devices_option,
    ),
)  # fmt: skip
