"""Where a prompt in pieces is cut."""


def cuts(tokens: int) -> tuple[int, int]:
    """The ends of the first and of the second prefill of a prompt in pieces; single steps follow.

    >>> cuts(40)
    (13, 30)
    """
    return tokens // 3, tokens - tokens // 4
