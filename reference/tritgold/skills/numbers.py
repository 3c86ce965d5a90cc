"""Questions about numbers and the calendar: sums, comparisons, Roman numerals, weekdays, dates, units."""

from datetime import date, timedelta

from tritgold.skills.draws import Draws
from tritgold.skills.question import Question

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ROMAN = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X"} | {
    9: "IX",
    5: "V",
    4: "IV",
    1: "I",
}
NUMERALS = ((1, 39), (40, 399), (400, 3999))
DECIMAL = {"km": ("m", 1000), "kg": ("g", 1000), "m": ("cm", 100), "cm": ("mm", 10), "l": ("ml", 1000)}
TIME = {"h": ("min", 60), "min": ("s", 60), "days": ("h", 24), "weeks": ("days", 7)}


def add(draws: Draws, level: int) -> Question:
    """``37 + 58 = 95``. The key has the smaller number first: 58 + 37 is the same fact."""
    a, b = _pair(draws, level)
    return Question(f"{min(a, b)} {max(a, b)}", f"{a} + {b}", str(a + b))


def subtract(draws: Draws, level: int) -> Question:
    """``95 - 37 = 58``, never below zero."""
    b, a = sorted(_pair(draws, level))
    return Question(f"{a} {b}", f"{a} - {b}", str(a - b))


def _pair(draws: Draws, level: int) -> tuple[int, int]:
    """Up to 99 and a digit; two of two digits; two of three. In either order."""
    low, high = ((0, 99), (10, 99), (100, 999))[level]
    a, b = draws.between(low, high), draws.between(low, 9 if level == 0 else high)
    return (a, b) if draws.below(2) else (b, a)


def compare(draws: Draws, level: int) -> Question:
    """``37 vs 58 = less``. A third of them share their leading digits."""
    digits = (1, 3, 5)[level]
    a, b = (draws.between(10 ** (digits - 1), 10**digits - 1) for _ in range(2))
    if draws.below(3) == 0:
        same = 10 ** draws.below(digits + 1)
        b = a // same * same + b % same
    return Question(f"{a} {b}", f"{a} vs {b}", "less" if a < b else "more" if a > b else "same")


def numeral(number: int) -> str:
    """The Roman numeral of 1 to 3999.

    >>> numeral(1994)
    'MCMXCIV'
    """
    text = ""
    for value, letters in ROMAN.items():
        text += letters * (number // value)
        number %= value
    return text


def to_roman(draws: Draws, level: int) -> Question:
    """``roman 94 = XCIV``."""
    number = draws.between(*NUMERALS[level])
    return Question(str(number), f"roman {number}", numeral(number))


def from_roman(draws: Draws, level: int) -> Question:
    """``number XCIV = 94``."""
    number = draws.between(*NUMERALS[level])
    return Question(str(number), f"number {numeral(number)}", str(number))


def weekday(draws: Draws, level: int) -> Question:
    """``Monday + 12 = Saturday``."""
    day, steps = draws.below(7), draws.between(*((1, 9), (10, 40), (41, 99))[level])
    return Question(f"{day} {steps}", f"{DAYS[day]} + {steps}", DAYS[(day + steps) % 7])


def calendar(draws: Draws, level: int) -> Question:
    """``after 1998-12-31 = 1999-01-01``; hard: the day before. A third are the last days of a month, but not easy ones.

    The key is the earlier day: what is after it, and what is before the next, is the same fact.
    """
    year, month, day = draws.between(1900, 2099), draws.between(1, 12), draws.between(1, 27)
    first = date(year, month, day)
    if level and draws.below(3) == 0:
        first = (date(year, month, 28) + timedelta(4)).replace(day=1) - timedelta(1)
    second = first + timedelta(1)
    if level < 2:
        return Question(str(first), f"after {first}", str(second))
    return Question(str(first), f"before {second}", str(first))


def units(draws: Draws, level: int) -> Question:
    """``5 km in m = 5000``; middle: either way, to 999; hard: of time, to 99."""
    table = TIME if level == 2 else DECIMAL
    larger = draws.pick(list(table))
    smaller, factor = table[larger]
    number = draws.between(1, (19, 999, 99)[level])
    key = f"{number} {larger}"
    if level and draws.below(2):
        return Question(key, f"{number * factor} {smaller} in {larger}", str(number))
    return Question(key, f"{number} {larger} in {smaller}", str(number * factor))
