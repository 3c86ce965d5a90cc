"""python tests/adversary: every faulty, right and cheating engine through ``tritgold check``, and the table of them.

python tests/adversary --only 'Rows*'     # those whose name, kind or group matches
python tests/adversary --table            # what the journal has, without a run
python tests/adversary --out FILE         # the counts by kind, and what no input shows, as JSON too
python tests/adversary --proof            # no judge: how far each is from the base engine, in sessions beyond any check
"""

import argparse
import fnmatch
import json
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # run as a command, outside pytest; hence the late imports

from not_yet import NOT_YET
from proof import difference
from registry import FOLDER, Entry, all_entries
from runner import Journal, Outcome, run_entry, write_model


def matches(entry: Entry, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for text in (entry.name, entry.kind, entry.group))


def surprising(outcome: Outcome) -> bool:
    """Not what is known of today's judge: a hole that is not listed, or a listed one that is closed."""
    return outcome.good == (outcome.name in NOT_YET)


def table(outcomes: list[Outcome]) -> str:
    lines = []
    for kind in dict.fromkeys((o.group, o.kind) for o in outcomes):
        lines.append(f"\n{kind[0]}: {kind[1]}")
        for o in outcomes:
            if (o.group, o.kind) == kind:
                listed = " (not yet)" if o.name in NOT_YET else ""
                lines.append(f"  {o.verdict + listed:<20} {o.code:>4} {o.seconds:>6.1f} s  {o.name:<30} {o.what}")
    return "\n".join([*lines, "", *totals(outcomes)])


def totals(outcomes: list[Outcome]) -> list[str]:
    found = Counter((o.group, o.verdict) for o in outcomes)
    lines = [f"{group:<8} {verdict:<20} {count:>4}" for (group, verdict), count in sorted(found.items())]
    return [*lines, f"{'as expected':<29} {sum(o.good for o in outcomes):>4} of {len(outcomes)}"]


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts of each group, kind and verdict; the entries that no input shows, with the reason."""
    counts = Counter((o.group, o.kind, o.verdict) for o in outcomes)
    return {
        "schema": "tritgold.adversary/1",
        "counts": [[*key, count] for key, count in sorted(counts.items())],
        "unseen": [
            {"group": o.group, "what": o.what, "why": o.unseen, "verdict": o.verdict} for o in outcomes if o.unseen
        ],
        "as_expected": sum(o.good for o in outcomes),
        "entries": len(outcomes),
    }


def prove(entries: list[Entry]) -> int:
    """Print how far the logits of each are from the base engine's; nothing about loops, text and files."""
    with tempfile.TemporaryDirectory(prefix="tritgold-adversary-models-") as folder:
        for entry in entries:
            if not (Path(folder) / entry.model).exists():
                write_model(entry.model, Path(folder) / entry.model)
            distance, session = difference(entry, Path(folder))
            print(f"{entry.group:<8} {entry.kind:<15} {entry.name:<30} {distance:9.1e} {session}", flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="pattern of a name, kind or group; may be repeated")
    parser.add_argument("--journal", type=Path, default=FOLDER.parents[1] / "build" / "adversary.jsonl")
    parser.add_argument("--again", action="store_true", help="run even what the journal has")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--proof", action="store_true", help="compare with the base engine instead of judging")
    parser.add_argument("--out", type=Path, help="file for the summary, JSON")
    parser.add_argument("--json", action="store_true", help="outcomes and totals as JSON")
    parser.add_argument("--limit", type=float, default=300, help="seconds an entry (default 300)")
    return parser.parse_args()


def main() -> int:
    """0 where every outcome is as expected or listed in not_yet, 1 where one is not, 2 where nothing matches."""
    asked = arguments()
    entries = all_entries()
    chosen = [e for e in entries.values() if not asked.only or any(matches(e, p) for p in asked.only)]
    if not chosen:
        print(f"no entry matches {', '.join(asked.only)}", file=sys.stderr)
        return 2
    if asked.proof:
        return prove([e for e in chosen if e.group != "cheats"])
    journal = Journal(asked.journal)
    with tempfile.TemporaryDirectory(prefix="tritgold-adversary-models-") as models:
        for entry in chosen:
            if not asked.table and (asked.again or entry.name not in journal.outcomes):
                journal.add(run_entry(entry, Path(models), asked.limit))
                done = journal.outcomes[entry.name]
                print(
                    f"{done.verdict:<12} {done.code:>4} {done.seconds:>6.1f} s  {done.name}",
                    file=sys.stderr,
                    flush=True,
                )
    outcomes = journal.of(entry.name for entry in chosen)
    if asked.json:
        print(json.dumps({"outcomes": [asdict(o) for o in outcomes], "totals": totals(outcomes)}, indent=1))
    else:
        print(table(outcomes))
    if asked.out is not None:
        asked.out.write_text(json.dumps(summary(outcomes), indent=1) + "\n")
    odd = [o for o in outcomes if surprising(o)]
    for o in odd:
        print(f"not as listed: {o.name}: {o.verdict}, exit code {o.code}", file=sys.stderr)
    return int(bool(odd))


if __name__ == "__main__":
    sys.exit(main())
