"""The pattern language of xfail files."""


def matches(pattern: str, case: str) -> bool:
    """Whether an entry names a case: a level names all its cases; otherwise the whole id, where ``*`` is any text.

    No other character is special, because the names of vectors contain brackets.

    >>> matches("operations:layers.*.q.out", "operations:layers.11.q.out"), matches("logits", "logits")
    (True, True)
    >>> matches("operations", "operations:embedding"), matches("operations:q.out", "operations:layers.0.q.out")
    (True, False)
    >>> matches("trace:*.0.q*t", "trace:layers.0.q.out"), matches("trace:*.q.*.q.*", "trace:layers.0.q.out")
    (True, False)
    """
    level, colon, _ = pattern.partition(":")
    if not colon:
        return case.partition(":")[0] == level
    first, *rest = pattern.split("*")
    if not rest:
        return case == pattern
    *middle, last = rest
    if not case.startswith(first) or not case.endswith(last) or len(case) < len(first) + len(last):
        return False
    at, end = len(first), len(case) - len(last)
    for piece in middle:  # the earliest match leaves the most room for the next
        at = case.find(piece, at, end) + len(piece)
        if at < len(piece):
            return False
    return True
