"""Where a prompt is cut."""


def cuts(tokens: int) -> tuple[int, int]:
    """Where a prompt in pieces is cut: two prefills up to these, then single steps.

    >>> cuts(40)
    (13, 30)
    """
    return tokens // 3, tokens - tokens // 4
