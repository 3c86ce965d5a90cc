"""Rows of a long measurement, kept as they are made, so that it goes on where it was stopped."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


class Journal:
    """Rows by their keys. path: a file of JSON lines, read when it is there; without one nothing is kept.

    seconds: of processor time that all rows took, those of earlier runs included. say: where a line a row goes. of:
    what the rows are of, a model and a number of tokens; ValueError for a file whose rows are of something else.
    """

    def __init__(self, path: Path | None = None, say: TextIO | None = None, of: dict[str, Any] | None = None) -> None:
        self._path, self._say, self._of = path, say, of or {}
        self._rows: dict[str, Any] = {}
        self.seconds = 0.0
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                kept = json.loads(line)
                if kept.get("of", self._of) != self._of:
                    raise ValueError(f"{path} is of {kept['of']}, and asked for is {self._of}: remove it")
                self._rows[json.dumps(kept["key"])] = kept["row"]
                self.seconds += kept["seconds"]

    @classmethod
    def beside(cls, report: Path | None, of: dict[str, Any] | None = None) -> "Journal":
        """The rows of a report, in a file next to it; a line for each on stderr. Without a report nothing is kept."""
        return cls(report and report.with_name(report.name + ".rows"), say=sys.stderr, of=of)

    def row(self, key: tuple[Any, ...], make: Callable[[], Any], shown: str = "") -> Any:
        """The row of this key, made where it is not there; anything that JSON holds. shown: a field to be said."""
        name = json.dumps(list(key))
        if name not in self._rows:
            start = time.process_time()
            row = self._rows[name] = make()
            seconds = time.process_time() - start
            self.seconds += seconds
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    kept = {"of": self._of, "key": list(key), "row": row, "seconds": round(seconds, 3)}
                    file.write(json.dumps(kept) + "\n")
            if self._say is not None:
                rows = row if isinstance(row, list) else [row or {}]
                said = "; ".join(str(one.get(shown)) for one in rows)
                print(f"{' '.join(map(str, key))}: {said} ({seconds:.1f} s)", file=self._say, flush=True)
        return self._rows[name]

    def close(self) -> None:
        """The report is written: the file may go."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
