"""What every refusal must be: a TritgoldError that can be printed, soon and without much memory."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tritgold.errors import TritgoldError

SECONDS, MEGABYTES = 1.0, 50


def refusal(act: Callable[[], object]) -> TritgoldError:
    """The error that ``act`` ends with; an AssertionError where it ends with none, the bare exception otherwise."""
    try:
        result = act()
    except TritgoldError as error:
        assert_printable(error)
        return error
    raise AssertionError(f"accepted: a {type(result).__name__}")


def assert_printable(error: TritgoldError) -> None:
    """Its text can go to a terminal: valid UTF-8, no escape sequences out of a hostile file, not endless."""
    text = str(error)
    text.encode()
    assert not [c for c in text if not (c.isprintable() or c == "\n")], ascii(text)
    assert len(text) < 4000, f"{len(text)} characters: {text[:200]} ..."
    assert error.kind in text


@contextmanager
def frugal(megabytes: float = MEGABYTES, seconds: float = SECONDS) -> Iterator[None]:
    """The block takes less than a second of processor time and, at its peak, less than 50 MB of memory.

    Processor time, because the machine may be shared; memory as Python and NumPy account for it.
    """
    tracemalloc.start()
    begin = time.process_time()
    try:
        yield
        took, peak = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert took < seconds, f"{took:.2f} s"
    assert peak < megabytes * 1e6, f"{peak / 1e6:.1f} MB"
