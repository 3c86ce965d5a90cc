"""judge: one engine, one golden run -> one report. The levels in order, from the surest verdict to the widest."""

import shlex
from collections.abc import Callable, Iterable

import numpy as np

from tritgold.golden import DEFAULT
from tritgold.layers.arithmetic import mode_id
from tritgold.modes import GOLDEN, LLAMA_CPP_Q8_K
from tritgold.trace import Trace, versions
from tritgold_conformance.comparing.activation_statistics import side_by_side
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.error_map import error_map
from tritgold_conformance.comparing.free_running import FreeRunning, compare_traces
from tritgold_conformance.comparing.logits import Explained, LogitsVerdict, explain_trace, judge_logits
from tritgold_conformance.comparing.next_tokens import Completion, TextVerdict, judge_text
from tritgold_conformance.comparing.statistics_bounds import judge_statistics
from tritgold_conformance.comparing.tie_sensitivity import trace_spread
from tritgold_conformance.comparing.ties import BrokenTie, follow_ties
from tritgold_conformance.contract.clock import measure_speed
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.level_notes import logits_note, operations_note, trace_note, unknown_names
from tritgold_conformance.judging.mode_matching import matched_mode
from tritgold_conformance.judging.teacher_forced import judge_operations
from tritgold_conformance.questions.edge_inputs import judge_vectors
from tritgold_conformance.questions.packed_bytes import judge_files
from tritgold_conformance.results.report import LEVELS, FreeRun, Level, Report, Side, Verdict

_BOUNDS = f"bounds are known for mode {GOLDEN.id} alone"
Say = Callable[[str], None]


def judge(
    golden: GoldenRun,
    engine: EngineUnderTest,
    model: str,
    with_speed: bool = True,
    options: tuple[str, ...] = (),
    say: Say = lambda _: None,
) -> Report:
    """Judge an engine on one golden run.

    model: what to call the model in the report. options: of the command line, to be repeated in ``reproduce``. say:
    told what is being done. An exception of the engine's is an EngineError, it could not be judged, unless it comes
    from one operation, which then fails. Speed is measured only where every assessed level passed.
    """
    return _Judgement(golden, engine, say).report(model, with_speed, options)


def cuts(tokens: int) -> tuple[int, int]:
    """Where a prompt in pieces is cut: two prefills up to these, then single steps.

    >>> cuts(40)
    (13, 30)
    """
    return tokens // 3, tokens - tokens // 4


def judge_alone(golden: GoldenRun, engine: EngineUnderTest, only: str) -> list[Comparison | str]:
    """One operation on golden inputs: what ``reproduce`` asks for."""
    return list(judge_operations(golden, engine, only))


class _Judgement:
    """The levels one after the other; each fills in its part."""

    def __init__(self, golden: GoldenRun, engine: EngineUnderTest, say: Say) -> None:
        self.golden, self.engine, self.say = golden, engine, say
        self.levels: dict[str, Level] = {}
        self.comparisons: list[Comparison] = []
        self.from_files: list[Comparison] = []
        self.from_statistics: list[Comparison] = []
        self.not_assessed: list[str] = []
        self.logits: list[LogitsVerdict] = []
        self.explanations: list[Explained] = []
        self.free: FreeRunning | None = None
        self.text: TextVerdict | None = None
        self.given_logits: dict[str, np.ndarray] = {}
        self.completions: list[Completion | None] = []
        self.mode = mode_id(golden.arithmetic)
        self.trace: dict[str, np.ndarray] = {}
        self.given: dict[str, dict[str, float]] = {}  # statistics

    def report(self, model: str, with_speed: bool, options: tuple[str, ...]) -> Report:
        self.say("engine")
        self.engine.prepare(self.golden)
        self.files()
        self.operations()
        self.statistics()
        self.say("trace")
        if self.mode != LLAMA_CPP_Q8_K.id:
            self.trace = self.engine.trace(self.golden.tokens)
        shows_codes = _codes(self.golden.trace) <= self.trace.keys()
        if shows_codes:
            self.follow(())
        self.prefill()
        self.free_run(strict=shows_codes or self.followed_by_logits())
        self.continued()
        if "steps" not in self.levels:
            self.steps()
        self.next_tokens()
        verdict = _verdict(self.levels)
        timed = with_speed and verdict == "conforms"
        first = self.first_divergence()
        engine = self.side(self.engine, timed)
        reference = EngineUnderTest(ReferenceEngine(self.golden.checkpoint, len(self.golden.tokens)))
        return Report(
            verdict=verdict,
            engine=engine,
            reference=self.side(reference, engine.speed is not None),
            mode=self.mode,
            model=model,
            model_hash=self.golden.trace.model_hash,
            config=self.golden.checkpoint.config.as_dict(),
            tokens=self.golden.tokens,
            machine=versions(),
            levels={name: self.levels[name] for name in LEVELS},
            first_divergence=first,
            operations=self.comparisons,
            not_assessed=self.not_assessed + ([] if self.free is None else self.free.missing),
            free_run=self.free_run_shown(),
            ties=[] if self.free is None else self.free.ties,
            noise=self.free.worst if self.free is not None and self.free.compared else None,
            logits=self.logits,
            text=self.text,
            statistics=side_by_side(self.golden.trace.arrays, self.trace, self.given),
            repeat=self.command(model, options, None),
            reproduce=self.command(model, options, first),
            matches=self.other_mode(),
        )

    def files(self) -> None:
        if not self.engine.has("unpack"):
            self.levels["files"] = Level(status="not assessed", note="the engine has no unpack()")
            return
        self.say("packed bytes")
        self.levels["files"], self.from_files = self.level_of(judge_files(self.engine))

    def statistics(self) -> None:
        if self.mode != LLAMA_CPP_Q8_K.id:
            self.given = self.engine.statistics(self.golden.tokens)
        if not self.given:
            lacks = "the engine gives no statistics()"
            self.levels["statistics"] = Level(status="not assessed", note=lacks)
            return
        self.say("activation statistics")
        level, self.from_statistics = self.level_of(judge_statistics(self.golden, self.given))
        unknown = sorted(self.given.keys() - self.golden.trace.arrays.keys())
        if unknown:
            level.note = "; ".join(filter(None, (level.note, unknown_names(unknown))))
        self.levels["statistics"] = level

    def level_of(self, outcomes: Iterable[Comparison | str]) -> tuple[Level, list[Comparison]]:
        """A level of comparisons, and of names that are not assessed."""
        judged = list(outcomes)
        comparisons = [c for c in judged if isinstance(c, Comparison)]
        absent = [name for name in judged if isinstance(name, str)]
        failed = sum(not c.passed for c in comparisons)
        level = Level(
            status="failed" if failed else "passed" if comparisons else "not assessed",
            compared=len(comparisons),
            failed=failed,
            not_assessed=len(absent),
            absent=absent,
            note=operations_note(comparisons) or "the engine gave none of them",
        )
        return level, comparisons

    def operations(self) -> None:
        for level, judged in (("operations", judge_operations), ("vectors", judge_vectors)):
            if not self.engine.has("operation") or self.mode == LLAMA_CPP_Q8_K.id:
                lacks = "the engine has no operation()" if not self.engine.has("operation") else _BOUNDS
                self.levels[level] = Level(status="not assessed", note=lacks)
                continue
            self.say("operations on golden inputs" if level == "operations" else "operations on telling inputs")
            outcomes = list(judged(self.golden, self.engine))
            self.levels[level], comparisons = self.level_of(outcomes)
            self.comparisons += comparisons
            self.not_assessed += [name for name in outcomes if isinstance(name, str)]

    def follow(self, known: list[BrokenTie] | tuple[()]) -> None:
        """Run the golden model again with the engine's codes at ties: what its trace and its logits are held to."""
        self.followed, self.ties = follow_ties(self.golden, self.trace, known)
        if self.ties:
            self.explanations.append(Explained(self.followed["logits"], self.ties))

    def followed_by_logits(self) -> bool:
        """Follow the ties that logits tell of, of a trace without codes; whether no tie can be hidden any more.

        They are those of the prefill, or of the trace itself, or token by token. What no ties explain is wrong.
        """
        searched = not self.broken()
        if not self.logits and "logits" in self.trace:
            why, told = explain_trace(self.golden, self.trace, searched)
            self.follow(why.ties)
            self.explanations += [why] if why.allowed is not None else []
            return told
        if not self.logits and self.trace:
            self.steps()
        verdict = self.logits[0] if self.logits else None
        self.follow(verdict.ties if verdict else ())
        return verdict is not None and verdict.allowed is None and (verdict.passed or searched)

    def broken(self) -> bool:
        """Whether the engine is known to compute wrongly: then no ties are searched for."""
        return any(level.status == "failed" for name, level in self.levels.items() if name != "files")

    def free_run(self, strict: bool) -> None:
        """strict: ties are known. Otherwise they may hide where the trace shows no codes."""
        if not self.trace:
            lacks = _BOUNDS if self.mode == LLAMA_CPP_Q8_K.id else "the engine shows no trace()"
            self.levels["trace"] = Level(status="not assessed", note=lacks)
            return
        spread = None if strict else trace_spread(self.golden)
        free = compare_traces(self.followed.arrays, self.trace, len(self.golden.tokens), spread)
        free.ties = self.ties
        unknown = sorted(self.trace.keys() - self.golden.trace.arrays.keys())
        self.levels["trace"] = Level(
            status="failed" if free.divergence else "passed" if free.compared else "not assessed",
            compared=len(free.compared),
            failed=int(free.divergence is not None),
            not_assessed=len(free.missing),
            absent=free.missing,
            note=trace_note(free, unknown, hidden=not strict),
        )
        self.free = free

    def free_run_shown(self) -> FreeRun | None:
        if self.free is None:
            return None
        errors = error_map(self.followed.arrays, self.trace, len(self.golden.tokens))
        return FreeRun(compared=self.free.compared, divergence=self.free.divergence, errors=errors)

    def prefill(self) -> None:
        self.say("logits of one prefill")
        self.engine.reset()
        lacks = "the engine gave no logits" if self.engine.has("prefill") else "the engine has no prefill()"
        self.judge_path("logits", "prefill", self.engine.prefill(self.golden.tokens), lacks)

    def continued(self) -> None:
        """A prompt in pieces and then single steps: what every generation does, and neither path above shows."""
        tokens = self.golden.tokens
        cut, end = cuts(len(tokens))
        if not self.engine.has("prefill") or cut == 0:
            what = "the input is too short to be cut" if self.engine.has("prefill") else "the engine has no prefill()"
            self.levels["continued"] = Level(status="not assessed", note=what)
            return
        self.say("logits of a prompt in pieces")
        self.engine.reset()
        pieces = [self.engine.prefill(tokens[:cut]), self.engine.prefill(tokens[cut:end])]
        rest = tokens[end:]
        if self.engine.has("step"):
            pieces += [_row(self.engine.step(token)) for token in rest]
        elif rest:
            pieces.append(self.engine.prefill(rest))
        self.judge_path("continued", "continued", _stacked(pieces), "the engine gave no logits")

    def steps(self) -> None:
        if not self.engine.has("step"):
            self.levels["steps"] = Level(status="not assessed", note="the engine has no step()")
            return
        self.say("logits token by token")
        self.engine.reset()
        rows = [_row(self.engine.step(token)) for token in self.golden.tokens]
        self.judge_path("steps", "steps", _stacked(rows), "the engine gave no logits")

    def next_tokens(self) -> None:
        if not self.engine.has("complete"):
            self.levels["text"] = Level(status="not assessed", note="the engine has no complete()")
            return
        self.say("next tokens")
        tokens = self.golden.tokens
        self.completions = [self.engine.complete(tokens[: n + 1]) for n in range(len(tokens))]
        if not any(self.completions):
            self.levels["text"] = Level(status="not assessed", note="the engine gave no next tokens")
            return
        self.text = judge_text(self.golden, self.completions)
        self.levels["text"] = Level(
            status="failed" if self.text.failing else "passed",
            compared=len(self.text.positions),
            failed=len(self.text.failing),
            not_assessed=self.text.absent,
            note=self.text.note,
        )

    def judge_path(self, level: str, path: str, logits: np.ndarray | None, absent: str) -> None:
        if logits is None:
            self.levels[level] = Level(status="not assessed", note=absent)
            return
        verdict = judge_logits(path, self.golden, logits, self.explanations, search=not self.broken())
        if verdict.passed and verdict.positions:
            self.explanations.append(_explanation(verdict, self.golden, self.explanations))
        self.logits.append(verdict)
        self.given_logits[path] = logits
        self.levels[level] = Level(
            status="passed" if verdict.passed else "failed",
            compared=len(verdict.positions),
            failed=sum(not p.passed for p in verdict.positions) or int(not verdict.passed),
            note=verdict.problem or logits_note(verdict),
        )

    def other_mode(self) -> str:
        """The mode that its logits and its text match, where they fail by the one that they were judged by."""
        if all(self.levels[name].status != "failed" for name in ("logits", "continued", "steps", "text")):
            return ""
        self.say("other modes")
        return matched_mode(self.golden, self.given_logits, self.completions)

    def first_divergence(self) -> Comparison | None:
        """The first failure in execution order: of reading bytes, of those on golden inputs, of the free run."""
        order = list(self.golden.trace.arrays)
        for c in self.from_files:
            if not c.passed:
                return c
        failed = [c for c in (*self.comparisons, *self.from_statistics) if not c.passed]
        if self.free is not None and self.free.divergence is not None:
            failed.append(self.free.divergence)
        return min(failed, key=lambda c: order.index(c.name.partition(" [")[0]), default=None)

    def side(self, engine: EngineUnderTest, timed: bool) -> Side:
        if timed:
            self.say(f"tokens/s of {engine.name}")
        speed = measure_speed(engine, self.golden.tokens) if timed else None
        return Side(name=engine.name, versions=engine.versions(), speed=speed)

    def command(self, model: str, options: tuple[str, ...], first: Comparison | None) -> str:
        where = () if model == DEFAULT else ("--model", model)
        only: tuple[str, ...] = ()
        if first is not None and any(first is c for c in self.comparisons) and " [" not in first.name:
            only = ("--only", first.name)
        ids = ",".join(map(str, self.golden.tokens))
        return shlex.join(["tritgold", "check", "--engine", self.engine.spec, *where, *options, *only, "--ids", ids])


def _codes(trace: Trace) -> set[str]:
    return {name for name in trace.arrays if name.endswith(".codes")}


def _row(logits: np.ndarray | None) -> np.ndarray | None:
    return None if logits is None else logits.reshape(1, -1)


def _stacked(pieces: list[np.ndarray | None]) -> np.ndarray | None:
    """One array of all rows; None where a piece is missing. Rows of several widths make an array of none."""
    whole = [piece for piece in pieces if piece is not None]
    if len(whole) < len(pieces):
        return None
    if len({piece.shape[1:] for piece in whole}) > 1:
        return np.zeros((0, 0))
    return np.concatenate(whole)


def _explanation(verdict: LogitsVerdict, golden: GoldenRun, known: list[Explained]) -> Explained:
    """What explained this path, to be tried first on the next."""
    if verdict.allowed is not None:
        return Explained(golden.logits, allowed=verdict.allowed, largest=verdict.largest)
    same = next((e for e in known if e.ties == verdict.ties and e.allowed is None), None)
    if same is not None or not verdict.ties:
        return same or Explained(golden.logits)
    followed, ties = follow_ties(golden, {}, verdict.ties)
    return Explained(followed["logits"], ties)


def _verdict(levels: dict[str, Level]) -> Verdict:
    statuses = {level.status for level in levels.values()}
    if "failed" in statuses:
        return "does not conform"
    return "conforms" if "passed" in statuses else "nothing was checked"
