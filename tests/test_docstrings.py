"""Docstrings become Markdown that a page can show, and whose doctests run there."""

from types import ModuleType

import docstrings

from tritgold import quantize


def documented(text: str) -> ModuleType:
    """A module with this docstring, and with the names of another one."""
    module = ModuleType("documented", text)
    module.__dict__.update({name: value for name, value in vars(quantize).items() if not name.startswith("__")})
    return module


def test_prose_code_and_tables_are_told_apart() -> None:
    text = """First, a * b and ``|x|``.

    Then

        deeper = |lines|

        of code

    ::

        told = code

    ==  ==
    a   |b|
    ==  ==
    """
    assert list(docstrings.markdown(documented(text))) == [
        "First, a * b and `|x|`.",
        "Then",
        "```text\ndeeper = |lines|\n\nof code\n```",
        "```text\ntold = code\n```",
        "```text\n==  ==\na   |b|\n==  ==\n```",
    ]


def test_a_doctest_has_the_imports_of_its_module() -> None:
    text = """X.

    >>> from tritgold.errors import FormatError
    >>> absmax_int8(np.ones((1, 2), np.float32))[0].tolist(), FormatError.__name__, len([1])
    ([[127, 127]], 'FormatError', 1)
    """
    _, code = docstrings.markdown(documented(text))
    assert code.startswith(
        "```python\n>>> import numpy as np\n>>> from tritgold.quantize import absmax_int8\n>>> from tritgold.errors"
    )


def test_a_docstring_in_one_line() -> None:
    """Spread over lines."""

    def thing() -> None:
        """One
        two | three.
        """

    assert docstrings.prose(thing) == r"One two \| three."
