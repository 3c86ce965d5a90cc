"""Errors: the order of a message, its fields in a report, and the classes that callers catch."""

import json

import pytest

from tritgold import errors
from tritgold.errors import FormatError, PackingError, TritgoldError, TritgoldWarning


def test_a_message_reads_file_thing_what_found_expected_hint_kind() -> None:
    error = FormatError(
        "is cut off", kind="truncated", file="m.gguf", thing="tensor 'a'", got=3, expected=4, hint="download it again"
    )
    assert str(error) == "m.gguf: tensor 'a': is cut off: found 3, expected 4. download it again [truncated]"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "is bad [k]"),
        ({"file": "f"}, "f: is bad [k]"),
        ({"thing": "t"}, "t: is bad [k]"),
        ({"got": 0}, "is bad: found 0 [k]"),
        ({"got": False}, "is bad: found False [k]"),
        ({"expected": 1}, "is bad: expected 1 [k]"),
        ({"got": 0, "expected": 1}, "is bad: found 0, expected 1 [k]"),
        ({"hint": "mend it"}, "is bad. mend it [k]"),
    ],
)
def test_what_is_absent_leaves_no_trace(fields: dict[str, object], text: str) -> None:
    assert str(TritgoldError("is bad", kind="k", **fields)) == text  # type: ignore[arg-type]


def test_a_place_is_added_and_never_replaced() -> None:
    error = PackingError("is bad", kind="k", thing="inner")
    assert error.located(file="f", thing="outer") is error
    assert str(error) == "f: inner: is bad [k]"
    error.located(file="g", thing="outermost")
    assert (error.file, error.thing) == ("f", "inner")


def test_a_report_is_json_and_keeps_numbers() -> None:
    error = FormatError("m", kind="k", got=3, expected=[1, 2])
    assert json.loads(json.dumps(error.as_dict())) == {
        "error": "FormatError",
        "kind": "k",
        "file": None,
        "thing": None,
        "message": "m",
        "got": 3,
        "expected": "[1, 2]",
        "hint": None,
    }
    assert error.as_dict()["got"] == 3
    for value, shown in ((float("nan"), "nan"), (float("-inf"), "-inf"), (10**400, 10**400), (0.5, 0.5)):
        assert FormatError("m", kind="k", got=value).as_dict()["got"] == shown


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "nan"), (float("inf"), "inf"), (-float("inf"), "-inf")])
def test_numbers_that_json_has_not_are_text_in_a_report(value: float, text: str) -> None:
    fields = FormatError("m", kind="k", got=value, expected=value).as_dict()
    assert (fields["got"], fields["expected"]) == (text, text)
    json.dumps(fields, allow_nan=False)
    assert FormatError("m", kind="k", got=0.5).as_dict()["got"] == 0.5


def test_every_error_is_one_kind_of_error() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and c.__module__ == errors.__name__]
    own = [c for c in classes if issubclass(c, Exception) and not issubclass(c, Warning)]
    assert len(own) > 8
    assert all(issubclass(c, TritgoldError) for c in own)
    assert issubclass(PackingError, ValueError)
    assert issubclass(TritgoldWarning, UserWarning)


def test_an_error_without_a_kind_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        FormatError("m")  # type: ignore[call-arg]
